"""The dashboard below a prefix, behind nginx with the configuration of the guide."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx
import pytest
from playwright.sync_api import Browser, expect

from tests.dashboard.browser.site import Site, Stock, views
from tests.dashboard.browser.visit import visiting
from tests.redis_server import free_port
from tests.worker.yard import PROJECT, until
from windlass.access_tokens import Role

GUIDE = PROJECT / "docs" / "guides" / "dashboard.md"
CONFIGURATION = """
daemon off;
pid {folder}/pid;
error_log {folder}/error.log;
events {{}}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  server {{
    listen 127.0.0.1:{port};
    {location}
  }}
}}
"""
ABSENT: Final = "There is no nginx here. `make programs` as root installs it on Debian and Ubuntu."


def find_nginx() -> str:
    found = shutil.which("nginx", path=f"{os.environ['PATH']}{os.pathsep}/usr/sbin")
    if found is None and not os.environ.get("CI"):
        pytest.skip(ABSENT)
    assert found is not None, ABSENT
    return found


@contextmanager
def nginx(folder: Path, upstream: int) -> Iterator[str]:
    """A proxy in front of a server; its address."""
    [location] = re.findall(r"```nginx\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    port = free_port()
    configuration = folder / "nginx.conf"
    configuration.write_text(
        CONFIGURATION.format(
            folder=folder, port=port, location=location.replace(":8155", f":{upstream}")
        )
    )
    command = [find_nginx(), "-p", str(folder), "-c", str(configuration)]
    with (folder / "nginx.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        until(lambda: answers(f"http://127.0.0.1:{port}/queue/login"), "an answer of nginx")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(10)


def answers(url: str) -> bool:
    try:
        return httpx.get(url).is_success
    except httpx.TransportError:
        return False


@pytest.mark.slow
def test_every_view_works_below_a_prefix(
    chromium: Browser, site: Site, stock: Stock, tmp_path: Path
) -> None:
    with (
        nginx(tmp_path, site.server.port) as proxy,
        visiting(chromium, f"{proxy}/queue") as visit,
    ):
        visit.watch.expects("status of 401")  # the question who the visitor is, before the login
        visit.page.goto(f"{visit.url}/#/queues")
        visit.page.wait_for_url(f"{visit.url}/login")
        visit.log_in(site.tokens[Role.ADMIN])
        visit.await_title("Queues")
        for address, title in views(stock).items():
            visit.open(address, title)
        [cookie] = visit.page.context.cookies()
        assert cookie["path"] == "/queue"
        visit.open("queues", "Queues")
        visit.click("Pause letters")
        visit.confirm("Pause")
        expect(visit.row("letters").locator(".badge")).to_have_text("paused")
        site.app.queue("letters").resume()
        site.shop.letter.using(queue="live").enqueue("x")
        expect(visit.row("live")).to_be_visible()
        assert all(path.startswith("/queue/") for path in visit.watch.paths())
        visit.page.get_by_role("button", name=re.compile("Sign out|Log out")).click()
        visit.page.wait_for_url(f"{visit.url}/login")
