"""Who may call the API: hosts, origins, tokens, proxies, and callers on this machine."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http.client import Client, LoopThread
from tests.http.conftest import Caller
from windlass import Windlass
from windlass.access_tokens import Role
from windlass.http import AccessOptions, ApiOptions, WindlassApi
from windlass.http.access import host_name, is_loopback
from windlass.testing.faults import Faults

JSON = {"content-type": "application/json"}


def kind_of(response: Any) -> str:
    assert response.headers["content-type"] == "application/problem+json"
    kind: str = response.json()["type"].rpartition(":")[2]
    return kind


class TestOpen:
    """Without tokens and proxy."""

    def test_a_caller_on_this_machine_may_do_everything(self, client: Client) -> None:
        assert client.get("/v1/stats").status_code == 200

    @pytest.mark.parametrize("address", ["192.0.2.1", "2001:db8::1", "elsewhere"])
    def test_a_caller_elsewhere_may_do_nothing(self, client: Client, address: str) -> None:
        response = client.at(address).get("/v1/stats")
        assert response.status_code == 401
        assert response.headers["www-authenticate"].startswith("Bearer")

    @pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "X-Real-IP"])
    def test_a_caller_behind_a_proxy_is_elsewhere(self, client: Client, header: str) -> None:
        assert client.get("/v1/stats", headers={header: "127.0.0.1"}).status_code == 401

    def test_the_first_token_closes_the_api(
        self, client: Client, app: Windlass, api: WindlassApi
    ) -> None:
        assert client.get("/v1/stats").status_code == 200
        _, text = app.access_tokens.create(name="ops", role="operator")
        api.gateway.authenticator._looked_at = float("-inf")  # a second has passed
        assert client.get("/v1/stats").status_code == 401
        assert client.with_token(text).get("/v1/stats").status_code == 200

    def test_the_end_of_the_last_token_does_not_open_it(
        self, client: Client, app: Windlass, api: WindlassApi
    ) -> None:
        app.access_tokens.create(name="ops", role="operator")
        assert client.get("/v1/stats").status_code == 401
        app.access_tokens.revoke("ops")
        api.gateway.authenticator._looked_at = float("-inf")
        assert client.get("/v1/stats").status_code == 401

    def test_the_end_of_a_token_in_use_does_not_open_it(
        self, client: Client, app: Windlass, api: WindlassApi
    ) -> None:
        """Also if no request without a token has arrived meanwhile."""
        _, text = app.access_tokens.create(name="ops", role="operator")
        assert client.with_token(text).get("/v1/stats").status_code == 200
        app.access_tokens.revoke("ops")
        assert client.get("/v1/stats").status_code == 401


class TestHosts:
    @pytest.mark.parametrize("host", ["localhost", "localhost:8155", "127.0.0.1:1", "[::1]:80"])
    def test_names_of_this_machine_are_served(self, client: Client, host: str) -> None:
        assert client.get("/v1/stats", headers={"host": host}).status_code == 200

    @pytest.mark.parametrize(
        "host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "", "[::1"]
    )
    def test_other_names_are_refused(self, client: Client, host: str) -> None:
        response = client.get("/v1/stats", headers={"host": host})
        assert response.status_code == 421
        assert kind_of(response) == "wrong-host"

    def test_probes_are_answered_under_every_name(self, client: Client) -> None:
        assert client.get("/healthz", headers={"host": "10.0.0.7"}).status_code == 200


class TestAllowedHosts:
    @pytest.fixture
    def options(self) -> ApiOptions:
        return ApiOptions(access=AccessOptions(allowed_hosts=("*.shop.example", "Jobs.example")))

    @pytest.mark.parametrize(
        ("host", "status"),
        [
            ("jobs.example", 200),
            ("JOBS.example:443", 200),
            ("eu.shop.example", 200),
            ("shop.example", 421),
            ("evil.example", 421),
        ],
    )
    def test_only_they_are_served(self, client: Client, host: str, status: int) -> None:
        assert client.get("/v1/stats", headers={"host": host}).status_code == status


class TestOrigins:
    """A browser must not act for the page of another site."""

    @pytest.mark.parametrize("method", ["POST", "PATCH", "DELETE"])
    @pytest.mark.parametrize(
        "headers",
        [
            {"origin": "http://evil.example"},
            {"origin": "null"},
            {"origin": "http://["},
            {"origin": "http://localhost:1"},
            {"sec-fetch-site": "cross-site"},
            {"sec-fetch-site": "same-site"},
        ],
    )
    def test_changes_for_other_sites_are_refused(
        self, client: Client, method: str, headers: dict[str, str]
    ) -> None:
        path = {"POST": "/v1/queues/mail/pause", "PATCH": "/v1/jobs/x", "DELETE": "/v1/tokens/x"}
        response = client.request(method, path[method], headers={**JSON, **headers}, content=b"{}")
        assert response.status_code == 403
        assert kind_of(response) == "cross-site"

    def test_the_own_origin_may_change(self, client: Client) -> None:
        headers = {"origin": "http://localhost", "sec-fetch-site": "same-origin"}
        assert client.post("/v1/queues/mail/pause", headers=headers).status_code == 200


class TestTokens:
    @pytest.mark.parametrize(
        "authorization",
        [
            "Bearer",
            "Bearer ",
            "Bearer wl_000000000000_" + "0" * 52,
            "Basic dXNlcjpwYXNz",
            "wl_000000000000_" + "0" * 52,
            "Bearer " + "x" * 5000,
            "Bearer \xe9",
        ],
    )
    def test_wrong_credentials_are_refused_even_on_this_machine(
        self, client: Client, authorization: str
    ) -> None:
        headers = {"authorization": authorization.encode("latin-1")}
        response = client.get("/v1/stats", headers=headers)
        assert response.status_code == 401
        assert kind_of(response) == "unauthenticated"

    def test_a_token_with_one_other_character_is_refused(
        self, client: Client, app: Windlass
    ) -> None:
        _, text = app.access_tokens.create(name="ops", role="operator")
        other = text[:-1] + ("0" if text[-1] != "0" else "1")
        assert client.with_token(text).get("/v1/stats").status_code == 200
        assert client.with_token(other).get("/v1/stats").status_code == 401

    def test_a_role_without_the_right_is_forbidden(self, caller: Caller) -> None:
        response = caller("producer").get("/v1/audit")
        assert response.status_code == 403
        assert "producer" in response.json()["detail"]
        assert "operator" in response.json()["detail"]

    def test_guessing_is_slowed_down(self, client: Client) -> None:
        guesser = client.with_token("wl_000000000000_" + "0" * 52)
        statuses = [guesser.get("/v1/stats").status_code for _ in range(80)]
        assert statuses[0] == 401
        assert 429 in statuses


class TestProxy:
    @pytest.fixture
    def options(self) -> ApiOptions:
        return ApiOptions(
            access=AccessOptions(
                proxy_header="X-User", trusted_proxies=("10.0.0.1",), proxy_role=Role.PRODUCER
            )
        )

    def test_a_user_that_the_proxy_names_has_the_role(self, client: Client) -> None:
        proxy = client.at("10.0.0.1")
        assert proxy.get("/v1/tasks", headers={"X-User": "ann"}).status_code == 200
        assert proxy.get("/v1/audit", headers={"X-User": "ann"}).status_code == 403

    @pytest.mark.parametrize("address", ["10.0.0.2", "127.0.0.1"])
    def test_another_machine_cannot_name_a_user(self, client: Client, address: str) -> None:
        response = client.at(address).get("/v1/tasks", headers={"X-User": "ann"})
        assert response.status_code == 401

    def test_a_caller_without_a_name_is_refused(self, client: Client) -> None:
        assert client.get("/v1/tasks").status_code == 401
        assert client.at("10.0.0.1").get("/v1/tasks", headers={"X-User": " "}).status_code == 401


class TestRates:
    @pytest.fixture
    def options(self) -> ApiOptions:
        return ApiOptions(rate=1.0, burst=3.0)

    def test_a_caller_that_sends_too_much_is_refused(self, client: Client) -> None:
        statuses = [client.get("/v1/stats").status_code for _ in range(5)]
        assert statuses == [200, 200, 200, 429, 429]

    def test_another_caller_is_not_affected(self, caller: Caller) -> None:
        first, second = caller("operator"), caller("operator")
        for _ in range(4):
            first.get("/v1/stats")
        assert first.get("/v1/stats").status_code == 429
        assert second.get("/v1/stats").status_code == 200


def test_one_caller_cannot_fill_the_audit_trail(caller: Caller) -> None:
    client = caller("operator", "mail")
    statuses = {client.post("/v1/queues/payments/pause").status_code for _ in range(250)}
    assert statuses == {403, 429}


def test_answers_do_not_name_tokens(caller: Caller, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    client = caller("operator")
    client.get("/v1/stats?token=hidden")
    secret = client._headers["Authorization"].rpartition("_")[2]
    own = [line.getMessage() for line in caplog.records if line.name.startswith("windlass")]
    assert any("/v1/stats 422" in line for line in own)
    assert not any(secret in line or "hidden" in line for line in own)


def test_mounted_below_a_prefix(api: WindlassApi, loop: LoopThread) -> None:
    from starlette.applications import Starlette
    from starlette.routing import Mount

    host = Starlette(routes=[Mount("/internal/queue", api)])
    client = Client(host, loop)
    assert client.get("/internal/queue/v1/stats").status_code == 200
    assert client.get("/internal/queue/nothing").status_code == 404
    assert client.get("/internal/queue/openapi.json").json()["servers"] == [{"url": "."}]


@pytest.mark.parametrize(
    ("address", "is_local"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        (None, True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("10.0.0.1", False),
        ("::", False),
        ("jobs.example", False),
    ],
)
def test_loopback_addresses(address: str | None, is_local: bool) -> None:
    assert is_loopback(address) is is_local


@pytest.mark.parametrize(
    ("host", "name"),
    [("A.example:80", "a.example"), ("[::1]:80", "::1"), ("", ""), ("[::1", ""), ("a:b:c", "a")],
)
def test_host_names(host: str, name: str) -> None:
    assert host_name(host) == name


def test_clients_do_not_learn_where_jobs_are_stored(client: Client, app: Windlass) -> None:
    place = app.engine.location.partition(" ")[2]
    missing = client.get("/v1/jobs/01aaaaaaaaaaaaaaaaaaaaaaaa")
    assert missing.status_code == 404
    faults = Faults(app.engine)
    with app.replace_engine(faults.engine):
        faults.refuse("queues", times=5)
        away = client.get("/v1/queues")
        unready = client.get("/readyz")
    assert (away.status_code, unready.status_code) == (503, 503)
    assert away.headers["retry-after"] == "1"
    for answer in (missing, away, unready):
        assert place not in answer.text
