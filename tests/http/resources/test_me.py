"""`/v1/me`: the caller, and what it may do."""

from __future__ import annotations

import pytest

from tests.http.client import Client
from tests.http.conftest import Caller
from windlass import Windlass
from windlass.access_tokens import RIGHTS, Role
from windlass.core import installed_version


def test_the_caller_of_an_open_server(client: Client, app: Windlass) -> None:
    assert client.get("/v1/me").json() == {
        "name": "anonymous",
        "role": "admin",
        "queues": [],
        "rights": list(RIGHTS),
        "may_change": True,
        "logged_in": False,
        "version": installed_version(),
        "engine": app.engine.location,
    }


@pytest.mark.parametrize("role", Role)
def test_the_bearer_of_a_token(caller: Caller, app: Windlass, role: Role) -> None:
    me = caller(role, "mail*").get("/v1/me").json()
    assert (me["name"], me["role"], me["queues"]) == (f"token:{role}-mailany", role, ["mail*"])
    assert me["rights"] == [right for right, roles in RIGHTS.items() if role in roles]
    assert me["may_change"] is (role in (Role.OPERATOR, Role.ADMIN))
    sees_all = role in (Role.VIEWER, Role.OPERATOR, Role.ADMIN)
    assert me["engine"] == (app.engine.location if sees_all else None)


def test_a_caller_without_a_token(client: Client) -> None:
    assert client.at("192.0.2.1").get("/v1/me").status_code == 401
