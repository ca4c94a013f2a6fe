"""The pages: their headers, no inline code, static files, and a prefix."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount

from tests.dashboard.cookie_browser import FORM, OWN_PAGE, CookieBrowser, Parts
from tests.http.client import Client, LoopThread
from tests.http.conftest import Caller
from windlass.dashboard.own_api import OwnApi
from windlass.dashboard.static_files import FOLDER, TYPES, accepts_gzip, read_files
from windlass.http import ApiOptions, WindlassApi

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'"
)
FILES = sorted(read_files())

#: A request for every kind of answer: its method, path, headers and status.
ANSWERS = [
    ("GET", "/", {}, 200),
    ("HEAD", "/", {}, 200),
    ("POST", "/", {}, 405),
    ("GET", "/", {"host": "evil.example"}, 421),
    ("GET", "/", {"if-none-match": "*"}, 304),
    *(("GET", f"/static/{name}", {}, 200) for name in FILES),
    ("GET", f"/static/{FILES[0]}", {"if-none-match": "*"}, 304),
    ("GET", "/static/nothing.js", {}, 404),
    ("DELETE", f"/static/{FILES[0]}", {}, 405),
    ("GET", "/login", {}, 200),
    ("GET", "/login?code=x", {}, 200),
    ("POST", "/login", {}, 403),
    ("POST", "/login", OWN_PAGE, 415),
    ("POST", "/login", {**OWN_PAGE, **FORM}, 401),
    ("PUT", "/login", {}, 405),
    ("GET", "/logout", {}, 405),
    ("POST", "/logout", {}, 403),
    ("POST", "/logout", OWN_PAGE, 303),
    ("GET", "/status", {}, 200),
    ("GET", "/status", {"x-forwarded-for": "192.0.2.1"}, 303),
    ("GET", "/status", {"authorization": "Basic x"}, 303),
    ("GET", "/status", {"host": "evil.example"}, 421),
]


@pytest.mark.parametrize(("method", "path", "headers", "status"), ANSWERS)
def test_every_answer_has_the_headers(
    client: Client, method: str, path: str, headers: dict[str, str], status: int
) -> None:
    answer = client.request(method, path, headers=headers)
    assert answer.status_code == status
    assert answer.headers["content-security-policy"] == POLICY
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    if answer.headers.get("content-type", "").startswith("text/html"):
        assert Parts(answer.text).inline == []


def test_a_page_for_a_role_without_rights_has_them_too(caller: Caller) -> None:
    answer = caller("producer").get("/status")
    assert answer.status_code == 403
    assert answer.headers["content-security-policy"] == POLICY
    assert "needs admin or operator" in Parts(answer.text).text
    assert Parts(answer.text).inline == []


def test_inline_code_would_be_found() -> None:
    """The check of the tests above."""
    page = '<p style="x" onclick=y><a href="javascript:z"><script>w()</script><style></style>'
    assert Parts(page).inline == ["p style", "p onclick", "a href", "script w()", "style"]


@pytest.mark.parametrize("path", ["/", "/login", "/login?code=x", "/status"])
def test_pages_refer_to_files_of_this_server_by_relative_urls(client: Client, path: str) -> None:
    links = [link for link in Parts(client.get(path).text).links() if not link.startswith("#")]
    assert links
    for link in (link for link in links if not link.startswith("data:")):
        assert link.startswith("./"), link
        assert client.get(link.removeprefix(".")).status_code in (200, 405), link


class TestFiles:
    @pytest.mark.parametrize("name", FILES)
    def test_a_file_has_its_type_and_its_content(self, client: Client, name: str) -> None:
        answer = client.get(f"/static/{name}")
        assert answer.headers["content-type"] == TYPES[Path(name).suffix]
        assert answer.headers["cache-control"] == "no-cache"
        assert answer.content == (FOLDER / name).read_bytes()

    @pytest.mark.parametrize("path", ["/", f"/static/{FILES[0]}"])
    def test_a_browser_that_has_a_file_does_not_load_it_again(
        self, client: Client, path: str
    ) -> None:
        first = client.get(path)
        etag = first.headers["etag"]
        for known in (etag, f"W/{etag}", f'"other", {etag}', "*"):
            again = client.get(path, headers={"if-none-match": known})
            assert (again.status_code, again.content) == (304, b"")
            assert again.headers["etag"] == etag
            assert again.headers["cache-control"] == "no-cache"
        other = client.get(path, headers={"if-none-match": '"other"'})
        assert (other.status_code, other.content) == (200, first.content)

    def test_a_changed_file_has_another_etag(self, tmp_path: Path) -> None:
        file = tmp_path / "app.js"
        file.write_text("1")
        before = read_files(tmp_path)["app.js"].etag
        file.write_text("2")
        assert read_files(tmp_path)["app.js"].etag != before

    @pytest.mark.parametrize(
        "path",
        [
            "",
            ".",
            "..",
            "../pages.py",
            "../../../windlass/dashboard/pages.py",
            "%2e%2e/pages.py",
            "..%2fpages.py",
            "....//pages.py",
            "..\\pages.py",
            "./app.css",
            "/app.css",
            "app.css/",
            "app.css\0",
            "app.css%00",
            "APP.CSS",
            str(FOLDER / "app.css"),
        ],
    )
    def test_no_other_path_leads_to_a_file(
        self, api: WindlassApi, loop: LoopThread, path: str
    ) -> None:
        """Sent as it is: a client library would shorten some of these paths."""
        page = Request(
            {"type": "http", "headers": [(b"host", b"localhost")], "client": ("127.0.0.1", 1)}
        )
        answer = loop.run(OwnApi(api).get(page, f"/static/{path}"))
        assert (answer.status, answer.document["type"]) == (404, "urn:windlass:problem:not-found")

    def test_only_known_types_are_served(self, tmp_path: Path) -> None:
        for name in ("app.js", "notes.txt", ".hidden", "page.html~", "parts/table.js"):
            file = tmp_path / name
            file.parent.mkdir(exist_ok=True)
            file.write_text("x")
        assert read_files(tmp_path).keys() == {"app.js", "parts/table.js"}

    def test_a_client_that_accepts_gzip_gets_it(self, client: Client) -> None:
        plain = client.get("/static/app.css", headers={"accept-encoding": "identity"})
        packed = client.get("/static/app.css", headers={"accept-encoding": "br, gzip;q=0.5"})
        assert "content-encoding" not in plain.headers
        assert packed.headers["content-encoding"] == "gzip"
        assert int(packed.headers["content-length"]) < len(plain.content) / 2
        assert packed.content == plain.content  # the client unpacks it
        assert plain.headers["vary"] == packed.headers["vary"] == "Accept-Encoding"
        assert plain.headers["etag"] != packed.headers["etag"]

    def test_the_etag_of_the_other_form_is_no_match(self, client: Client) -> None:
        plain = client.get("/static/app.css", headers={"accept-encoding": "identity"})
        asked = {"accept-encoding": "gzip", "if-none-match": plain.headers["etag"]}
        assert client.get("/static/app.css", headers=asked).status_code == 200

    @pytest.mark.parametrize(
        ("accepted", "is_accepted"),
        [
            ("", False),
            ("br", False),
            ("gzip", True),
            ("br, GZIP ; q=0.8", True),
            ("*", True),
            ("gzip;q=0", False),
            ("gzip; q=0.000, *", False),
            ("*;q=0", False),
            ("identity;q=1, *;q=0, gzip;q=0.001", True),
        ],
    )
    def test_the_accepted_codings(self, accepted: str, is_accepted: bool) -> None:
        assert accepts_gzip(accepted) is is_accepted


class TestBelowAPrefix:
    @pytest.fixture
    def mounted(self, api: WindlassApi, loop: LoopThread) -> Client:
        return Client(Starlette(routes=[Mount("/internal/queue", api)]), loop)

    def test_all_pages_are_there(self, mounted: Client) -> None:
        for path in ("/", "/login", "/status", f"/static/{FILES[0]}", "/v1/me"):
            assert mounted.get(f"/internal/queue{path}").status_code == 200, path

    def test_login_and_logout(self, mounted: Client, caller: Caller) -> None:
        token = caller("operator")._headers["Authorization"].removeprefix("Bearer ")
        browser = CookieBrowser(mounted, "/internal/queue")
        answer = browser.log_in(token)
        assert (answer.status_code, answer.headers["location"]) == (303, "./")
        assert browser.cookie["path"] == "/internal/queue"
        assert browser.get("/status").status_code == 200
        assert browser.post("/v1/queues/mail/pause").status_code == 200
        assert browser.post("/logout").headers["location"] == "./login"
        assert browser.cookies == {}
        assert browser.get("/status").status_code == 303


class TestWithoutDashboard:
    @pytest.fixture
    def options(self) -> ApiOptions:
        return ApiOptions(dashboard=False)

    @pytest.mark.parametrize("path", ["/", "/login", "/status", f"/static/{FILES[0]}"])
    def test_there_are_no_pages(self, client: Client, path: str) -> None:
        assert client.get(path).status_code == 404

    def test_the_cookie_is_not_accepted(self, client: Client, caller: Caller) -> None:
        token = caller("operator")._headers["Authorization"].removeprefix("Bearer ")
        assert (
            client.get("/v1/me", headers={"cookie": f"windlass_token={token}"}).status_code == 401
        )


def test_pages_are_not_in_the_document(client: Client) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    assert "/v1/me" in paths
    assert paths.keys().isdisjoint({"/", "/login", "/logout", "/status"})
