"""Login, logout, and what the cookie may do."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.dashboard.cookie_browser import OWN_PAGE, CookieBrowser, Parts
from tests.http.client import Client, LoopThread
from tests.worker.yard import until
from windlass import Windlass
from windlass.dashboard.local_login import CODE_S, LocalLogin
from windlass.dashboard.local_login import TOKEN_S as SESSION_S
from windlass.http import ApiOptions, WindlassApi
from windlass.testing.faults import Faults

UNKNOWN = "wl_000000000000_" + "0" * 52


@pytest.fixture
def token(app: Windlass) -> str:
    return app.access_tokens.create(name="ann", role="operator")[1]


class TestToken:
    def test_the_form_needs_no_script(self, client: Client) -> None:
        parts = Parts(client.get("/login").text)
        assert ("script" in dict(parts.elements)) is False
        form = dict(parts.elements)["form"]
        assert (form["method"], form["action"]) == ("post", "./login")
        assert dict(parts.elements)["input"]["name"] == "token"

    def test_the_form_tells_its_origin(self, client: Client) -> None:
        """With the policy of the header, a browser would send the origin `null`."""
        for path in ("/login", "/login?code=x", "/status"):
            metas = [found for tag, found in Parts(client.get(path).text).elements if tag == "meta"]
            assert {"name": "referrer", "content": "same-origin"} in metas

    def test_a_login_opens_the_api(self, browser: CookieBrowser, token: str) -> None:
        assert browser.get("/v1/me").status_code == 401
        answer = browser.log_in(f" {token}\n")
        assert (answer.status_code, answer.headers["location"]) == (303, "./")
        assert answer.headers["cache-control"] == "no-store"
        me = browser.get("/v1/me").json()
        assert (me["name"], me["role"], me["logged_in"]) == ("token:ann", "operator", True)

    @pytest.mark.parametrize("text", [UNKNOWN, "", "wl_\xe9", "x; Path=/", "x" * 300, "a\r\nb: c"])
    def test_a_wrong_token_is_refused(self, browser: CookieBrowser, token: str, text: str) -> None:
        answer = browser.log_in(text)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert "access token" in Parts(answer.text).text
        assert browser.cookies == {}

    def test_the_form_counts_and_no_other_credentials(
        self, client: Client, app: Windlass, token: str
    ) -> None:
        """A proxy may pass on a password of its own; the browser may have an earlier login."""
        other = app.access_tokens.create(name="bob", role="operator")[1]
        browser = CookieBrowser(client, authorization="Basic dXNlcjpwYXNz")
        assert browser.log_in(token).status_code == 303
        assert browser.cookie.value == token
        assert browser.log_in(other).status_code == 303
        assert browser.cookie.value == other
        assert browser.get("/v1/me").json()["name"] == "token:bob"
        assert browser.get("/status").status_code == 200
        assert browser.post("/v1/queues/mail/pause", page={}).status_code == 403
        assert browser.log_in(UNKNOWN).status_code == 401

    def test_a_login_opens_the_stream_of_events(
        self, api: WindlassApi, loop: LoopThread, client: Client, app: Windlass, token: str
    ) -> None:
        """`EventSource` of a browser sends cookies, and no bearer token."""
        headers = {"cookie": f"windlass_token={token}"}
        with Client(api, loop, headers).stream("/v1/events") as stream:
            assert stream.status == 200
            assert stream.next()[0] == "stats"
            app.access_tokens.revoke("ann")
            stream.read_to_end()

    def test_a_revoked_token_ends_the_login(
        self, browser: CookieBrowser, app: Windlass, token: str
    ) -> None:
        browser.log_in(token)
        assert browser.get("/status").status_code == 200
        app.access_tokens.revoke("ann")
        until(lambda: browser.get("/v1/me").status_code == 401, "the end of the token")
        assert browser.get("/status").headers["location"] == "./login"
        assert browser.log_in(token).status_code == 401

    def test_a_token_for_some_queues_sees_and_changes_only_these(
        self, browser: CookieBrowser, app: Windlass
    ) -> None:
        app.queue("mail").pause()
        app.queue("payments").pause()
        text = app.access_tokens.create(name="bob", role="operator", queues=["mail"])[1]
        browser.log_in(text)
        assert browser.get("/v1/me").json()["queues"] == ["mail"]
        page = Parts(browser.get("/status").text).text
        assert "mail" in page
        assert "payments" not in page
        assert browser.post("/v1/queues/mail/resume").status_code == 200
        assert browser.post("/v1/queues/payments/resume").status_code == 403

    def test_a_viewer_sees_its_queues_and_changes_nothing(
        self, browser: CookieBrowser, app: Windlass
    ) -> None:
        app.queue("mail").pause()
        app.queue("payments").pause()
        browser.log_in(app.access_tokens.create(name="eve", role="viewer", queues=["mail"])[1])
        assert browser.get("/v1/me").json()["may_change"] is False
        page = Parts(browser.get("/status").text).text
        assert "mail" in page
        assert "payments" not in page
        assert browser.post("/v1/queues/mail/resume").status_code == 403
        assert app.queue("mail").info().paused

    def test_a_producer_may_log_in_and_is_told_its_role(
        self, browser: CookieBrowser, app: Windlass
    ) -> None:
        browser.log_in(app.access_tokens.create(name="shop", role="producer")[1])
        me = browser.get("/v1/me").json()
        assert (me["may_change"], me["engine"]) == (False, None)
        assert me["rights"] == ["enqueue", "read_jobs"]
        assert browser.get("/status").status_code == 403

    def test_guessing_is_slowed_down(self, browser: CookieBrowser, token: str) -> None:
        answers = [browser.log_in(UNKNOWN) for _ in range(80)]
        refused = next(answer for answer in answers if answer.status_code == 429)
        assert int(refused.headers["retry-after"]) >= 1

    def test_an_engine_that_is_away_is_named(
        self, browser: CookieBrowser, app: Windlass, token: str
    ) -> None:
        faults = Faults(app.engine)
        with app.replace_engine(faults.engine):
            faults.refuse("get_documents", times=5)
            answer = browser.log_in(token)
        assert answer.status_code == 503
        assert "engine" in Parts(answer.text).text

    @pytest.mark.parametrize(
        ("content", "kind", "status"),
        [
            (b"token=" + b"x" * 5000, "application/x-www-form-urlencoded", 413),
            (b"token=\xff", "application/x-www-form-urlencoded", 400),
            (b"&".join(b"a=b" for _ in range(20)), "application/x-www-form-urlencoded", 400),
            (b'{"token": "x"}', "application/json", 415),
        ],
    )
    def test_other_bodies_are_refused(
        self, client: Client, content: bytes, kind: str, status: int
    ) -> None:
        headers = {**OWN_PAGE, "content-type": kind}
        assert client.post("/login", content=content, headers=headers).status_code == status

    def test_the_log_has_no_token(
        self, browser: CookieBrowser, token: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level("DEBUG")
        browser.log_in(token)
        browser.get("/status")
        own = [line.getMessage() for line in caplog.records if line.name.startswith("windlass")]
        assert any("POST /login 303" in line for line in own)
        assert not any(token in line for line in own)


class TestCookie:
    """Its attributes, as the server sets them."""

    @pytest.mark.parametrize(
        ("headers", "name", "path", "is_secure"),
        [
            ({}, "windlass_token", "/", False),
            ({"host": "localhost:8155"}, "windlass_token_8155", "/", False),
            ({"x-forwarded-proto": "https"}, "__Host-windlass_token", "/", True),
            ({"x-forwarded-proto": "https, http"}, "__Host-windlass_token", "/", True),
            ({"x-forwarded-proto": "http"}, "windlass_token", "/", False),
            ({"x-forwarded-prefix": "/queue/"}, "windlass_token", "/queue", False),
            (
                {"x-forwarded-proto": "https", "x-forwarded-prefix": "/a/queue"},
                "windlass_token",
                "/a/queue",
                True,
            ),
            ({"x-forwarded-prefix": "/x; Domain=evil.example"}, "windlass_token", "/", False),
            ({"x-forwarded-prefix": "//evil.example"}, "windlass_token", "/", False),
        ],
    )
    def test_attributes(
        self,
        client: Client,
        token: str,
        headers: Mapping[str, str],
        name: str,
        path: str,
        is_secure: bool,
    ) -> None:
        browser = CookieBrowser(client, **headers)
        answer = browser.post("/login", {"token": token}, {"sec-fetch-site": "same-origin"})
        assert answer.status_code == 303
        cookie = browser.cookie
        assert (cookie.key, cookie["path"], bool(cookie["secure"])) == (name, path, is_secure)
        assert cookie["httponly"]
        assert cookie["samesite"] == "Lax"
        assert not cookie["domain"]
        assert not cookie["max-age"]
        assert browser.get("/v1/me").status_code == 200

    def test_under_tls_a_cookie_without_the_host_prefix_is_not_read(
        self, client: Client, token: str
    ) -> None:
        """Another host of the same domain could have set it."""
        headers = {"cookie": f"windlass_token={token}", "x-forwarded-proto": "https"}
        assert client.get("/v1/me", headers=headers).status_code == 401

    def test_a_bearer_token_comes_first(self, client: Client, app: Windlass, token: str) -> None:
        other = app.access_tokens.create(name="bob", role="producer")[1]
        headers = {"cookie": f"windlass_token={token}"}
        me = client.with_token(other).get("/v1/me", headers=headers).json()
        assert (me["name"], me["logged_in"]) == ("token:bob", False)
        assert client.with_token(UNKNOWN).get("/v1/me", headers=headers).status_code == 401

    def test_an_old_cookie_does_not_close_an_open_server(self, client: Client) -> None:
        headers = {"cookie": f"windlass_token={UNKNOWN}"}
        me = client.get("/v1/me", headers=headers).json()
        assert (me["name"], me["logged_in"]) == ("anonymous", False)
        headers["authorization"] = "Basic dXNlcjpwYXNz"
        assert client.get("/v1/me", headers=headers).status_code == 401


OTHER_PAGES = [
    {},
    {"origin": "null"},
    {"origin": "http://evil.example"},
    {"origin": "http://localhost:1"},
    {"origin": "http://localhost.evil.example"},
    {"origin": "http://["},
    {"referer": "http://localhost/"},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site", "origin": "http://localhost"},
    {"sec-fetch-site": "none"},
    {"sec-fetch-site": ""},
    {"sec-fetch-site": "cross-site", "origin": "http://localhost"},
]
OWN_PAGES = [
    {"sec-fetch-site": "same-origin"},
    {"origin": "http://localhost"},
    {"origin": "HTTP://LOCALHOST"},
    {"sec-fetch-site": "same-origin", "origin": "http://localhost"},
]


class TestCrossSite:
    @pytest.mark.parametrize("page", OTHER_PAGES, ids=str)
    def test_another_page_changes_nothing_with_the_cookie(
        self, browser: CookieBrowser, app: Windlass, token: str, page: Mapping[str, str]
    ) -> None:
        app.queue("mail").resume()
        browser.log_in(token)
        answer = browser.post("/v1/queues/mail/pause", page=page)
        assert answer.status_code == 403
        assert answer.json()["type"].endswith(":cross-site")
        assert browser.post("/login", {"token": token}, page).status_code == 403
        assert browser.post("/logout", page=page).status_code == 403
        assert not any(record.paused for record in app.engine.queues())
        assert len(browser.cookies) == 1

    @pytest.mark.parametrize("page", OWN_PAGES, ids=str)
    def test_an_own_page_may(
        self, browser: CookieBrowser, token: str, page: Mapping[str, str]
    ) -> None:
        assert browser.post("/login", {"token": token}, page).status_code == 303
        assert browser.post("/v1/queues/mail/pause", page=page).status_code == 200
        assert browser.post("/logout", page=page).status_code == 303

    def test_a_form_without_an_origin_may_log_in(self, browser: CookieBrowser, token: str) -> None:
        """A page that hides its origin, but that the browser says is of this server."""
        page = {"sec-fetch-site": "same-origin", "origin": "null"}
        assert browser.post("/login", {"token": token}, page).status_code == 303

    def test_another_page_may_not_read_as_little_as_before(
        self, browser: CookieBrowser, token: str
    ) -> None:
        """A GET request changes nothing, so its page does not matter."""
        browser.log_in(token)
        assert browser.get("/v1/me", **{"sec-fetch-site": "cross-site"}).status_code == 200

    @pytest.mark.parametrize("method", ["POST", "PATCH", "DELETE"])
    def test_every_method_that_changes_is_checked(
        self, client: Client, app: Windlass, method: str
    ) -> None:
        text = app.access_tokens.create(name="root", role="admin")[1]
        path = {"POST": "/v1/queues/mail/pause", "PATCH": "/v1/jobs/x", "DELETE": "/v1/tokens/x"}
        headers = {"cookie": f"windlass_token={text}", "content-type": "application/json"}
        answer = client.request(method, path[method], headers=headers, content=b"{}")
        assert answer.json()["type"].endswith(":cross-site")

    def test_a_program_with_a_bearer_token_needs_no_page(self, client: Client, token: str) -> None:
        bearer = client.with_token(token)
        assert bearer.post("/v1/queues/mail/pause").status_code == 200
        both = {"cookie": f"windlass_token={token}"}
        assert bearer.post("/v1/queues/mail/pause", headers=both).status_code == 200

    def test_an_open_server_is_as_open_as_before(self, client: Client) -> None:
        assert client.post("/v1/queues/mail/pause").status_code == 200


class Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class TestCode:
    """The one-time login of `windlass dashboard`."""

    @pytest.fixture
    def clock(self) -> Clock:
        return Clock()

    @pytest.fixture
    def local(self, clock: Clock) -> LocalLogin:
        return LocalLogin("dashboard:ann@desk", clock)

    @pytest.fixture
    def options(self, local: LocalLogin) -> ApiOptions:
        return ApiOptions(login=local)

    def test_it_logs_in_as_an_admin(
        self, browser: CookieBrowser, app: Windlass, local: LocalLogin
    ) -> None:
        answer = browser.post("/login", {"code": local.code})
        assert (answer.status_code, answer.headers["location"]) == (303, "./")
        assert local.code not in answer.headers["set-cookie"]
        me = browser.get("/v1/me").json()
        assert (me["name"], me["role"], me["may_change"]) == ("dashboard:ann@desk", "admin", True)
        assert browser.post("/v1/queues/mail/pause").status_code == 200
        assert app.audit.list()[0].actor == "dashboard:ann@desk"

    def test_it_stores_no_token(
        self, browser: CookieBrowser, app: Windlass, local: LocalLogin
    ) -> None:
        """A stored one would close servers that are open to their machine."""
        browser.post("/login", {"code": local.code})
        assert not app.access_tokens.exist()

    def test_looking_at_the_page_does_not_use_the_code(
        self, browser: CookieBrowser, local: LocalLogin
    ) -> None:
        page = Parts(browser.get(f"/login?code={local.code}").text)
        assert browser.cookies == {}
        fields = [found for tag, found in page.elements if tag == "input"]
        assert [(field["name"], field["value"]) for field in fields] == [("code", local.code)]
        assert browser.post("/login", {"code": local.code}).status_code == 303

    def test_a_code_in_the_address_is_escaped(self, browser: CookieBrowser) -> None:
        page = browser.get("/login?code=%22%3E%3Cscript%3Ealert(1)%3C/script%3E").text
        assert "<script>" not in page
        assert "&quot;&gt;&lt;script&gt;" in page

    def test_it_works_once(
        self,
        browser: CookieBrowser,
        client: Client,
        local: LocalLogin,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        browser.post("/login", {"code": local.code})
        second = CookieBrowser(client)
        answer = second.post("/login", {"code": local.code})
        assert answer.status_code == 401
        assert "was used before" in answer.text
        assert second.cookies == {}
        assert "it was used before" in caplog.text
        assert browser.get("/v1/me").json()["role"] == "admin"

    def test_it_works_for_a_minute(
        self, browser: CookieBrowser, local: LocalLogin, clock: Clock
    ) -> None:
        clock.now_s += CODE_S
        answer = browser.post("/login", {"code": local.code})
        assert answer.status_code == 401
        assert "has expired" in answer.text
        assert browser.cookies == {}

    def test_a_wrong_code_does_not_use_it(self, browser: CookieBrowser, local: LocalLogin) -> None:
        for wrong in ("", "x", local.code[:-1], local.code + "x", "\xe9"):
            assert browser.post("/login", {"code": wrong}).status_code == 401
        assert browser.post("/login", {"code": local.code}).status_code == 303

    def test_another_page_cannot_use_it(self, browser: CookieBrowser, local: LocalLogin) -> None:
        page = {"origin": "http://evil.example"}
        assert browser.post("/login", {"code": local.code}, page).status_code == 403
        assert browser.post("/login", {"code": local.code}).status_code == 303

    def test_its_session_ends(
        self, browser: CookieBrowser, local: LocalLogin, clock: Clock, token: str
    ) -> None:
        browser.post("/login", {"code": local.code})
        clock.now_s += SESSION_S - 1
        assert browser.get("/v1/me").status_code == 200
        clock.now_s += 1
        assert browser.get("/v1/me").status_code == 401

    def test_the_end_of_the_command_ends_its_session(
        self, browser: CookieBrowser, local: LocalLogin, token: str
    ) -> None:
        browser.post("/login", {"code": local.code})
        local.end()
        assert browser.get("/v1/me").status_code == 401

    def test_an_unused_code_ends_with_the_command(
        self, browser: CookieBrowser, local: LocalLogin
    ) -> None:
        local.end()
        assert browser.post("/login", {"code": local.code}).status_code == 401


def test_a_server_without_a_one_time_login_says_so(browser: CookieBrowser) -> None:
    answer = browser.post("/login", {"code": "x"})
    assert answer.status_code == 401
    assert "no one-time login" in answer.text
