"""The guide about jobs in transactions: its commands, its programs, and its rights."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from mypy import api

from tests.client.connections.callers import ON_POSTGRESQL, ON_SQLITE
from tests.docs.pages import DOCS, Block, blocks, read
from tests.docs.transcript import Terminal
from tests.engine.postgres.databases import without_tables
from tests.outbox.databases import Shop, migrate, postgres_shop
from tests.postgres_server import OWNER, WORKER, shared_server
from windlass import State, Windlass
from windlass.outbox.connect import open_outbox

GUIDE = DOCS / "guides" / "transactions.md"
FILES = {block.label: block.text for block in blocks(GUIDE) if block.language == "python"}
URL = "postgresql://localhost/shop"
#: How the apps of the guide are made.
OUTBOX = f'Windlass("sqlite:///jobs.db", outbox="{URL}")'
SAME_DATABASE = f'Windlass("{URL}")'


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path)
    yield terminal
    terminal.close()


def test_the_commands_print_what_the_guide_shows(terminal: Terminal) -> None:
    for block in blocks(GUIDE):
        if block.label not in ("api.py", "views.py", "jobs.py"):
            terminal.follow(block)


def test_every_file_of_the_guide_is_tested() -> None:
    assert set(FILES) == {"shop.py", "api.py", "views.py", "jobs.py"}
    languages = {block.language for block in blocks(GUIDE)}
    assert languages == {"text", "python", "console", "sql"}


@pytest.mark.parametrize("name", FILES)
def test_the_files_are_typed(name: str, tmp_path: Path) -> None:
    for one, program in FILES.items():  # one imports another
        (tmp_path / one).write_text(program, encoding="utf-8")
    # The base classes of Django have no types.
    options = ["--strict", "--no-error-summary", "--disable-error-code=misc"]
    text, _, code = api.run([*options, str(tmp_path / name)])
    assert code == 0, text


#: What a client of each framework does, in the process of a test. Then a worker runs the job.
CLIENTS = {
    "api.py": """
import asyncio, httpx, api

async def main() -> str:
    async with api.engine.begin() as connection:
        await connection.run_sync(api.Base.metadata.create_all)
    transport = httpx.ASGITransport(app=api.api)
    async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
        reply = await client.post("/orders", params={"item": "lamp"})
    await api.engine.dispose()
    return reply.json()["job"]

app, id = api.app, asyncio.run(main())
""",
    "views.py": """
import django, json, sys
from django.conf import settings
from django.test import RequestFactory
from urllib.parse import urlsplit

parts = urlsplit(sys.argv[1])
place = {"NAME": parts.path[1:], "USER": parts.username, "HOST": parts.hostname, "PORT": parts.port}
settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", **place}},
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    USE_TZ=True,
)
django.setup()
import views
from django.db import connection
with connection.schema_editor() as editor:
    editor.create_model(views.Order)
reply = views.place_order(RequestFactory().post("/orders", {"item": "lamp"}))
app, id = views.app, json.loads(reply.content)["job"]
""",
}
WORKER_OF_CLIENT = """
import time
with app.worker():
    while app.engine.get([id]) == [None]:
        time.sleep(0.01)
    print(app.job(id).result(timeout=30))
"""


@pytest.mark.parametrize("app", [OUTBOX, SAME_DATABASE])
@pytest.mark.parametrize("name", CLIENTS)
def test_the_programs_enqueue_in_their_transaction(name: str, app: str, tmp_path: Path) -> None:
    shop = owned_shop()
    async_url = shop.url.url.replace("postgresql:", "postgresql+asyncpg:")
    assert OUTBOX in FILES[name]
    assert f"app = {SAME_DATABASE}" in read(GUIDE)
    text = FILES[name].replace(OUTBOX, app).replace(URL, shop.url.url)
    text = text.replace(URL.replace(":", "+asyncpg:", 1), async_url)
    (tmp_path / name).write_text(text, encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, "-c", CLIENTS[name] + WORKER_OF_CLIENT, shop.url.url],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "confirmed lamp\n"
    assert shop.waiting() == []


def test_a_worker_of_django_starts_from_its_own_module(tmp_path: Path) -> None:
    for name in ("views.py", "jobs.py"):
        (tmp_path / name).write_text(FILES[name], encoding="utf-8")
    (tmp_path / "settings.py").write_text("SECRET_KEY = 'secret'\n", encoding="utf-8")
    found = {
        name: subprocess.run(
            [sys.executable, "-c", f"import {name}; print(*{name}.app.tasks)"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        for name in ("jobs", "views")
    }
    assert found["jobs"].stdout == "views.confirm\n", found["jobs"].stderr
    assert found["views"].returncode == 1  # why the guide has the other module


def owned_shop() -> Shop:
    """A shop whose programs have all rights, as the guide's own database has."""
    shop = postgres_shop(is_migrated=False)
    url = shop.url.url.replace(f"//{WORKER}@", f"//{OWNER}@")
    owned = Shop(url, lambda: psycopg.connect(url))
    migrate(owned)
    with owned.connection() as connection:
        connection.execute("DROP TABLE orders")
        connection.commit()
    return owned


def test_the_rights_are_those_that_are_needed() -> None:
    """The tests of the outbox have these rights."""
    block = rights_of("windlass_outbox")
    shown = {re.sub(r"\s+", " ", line.partition(";")[0]) for line in block.text.splitlines()}
    needed = {
        "GRANT USAGE ON SCHEMA windlass_outbox TO shop",
        "GRANT INSERT ON windlass_outbox.jobs TO shop",
        "GRANT SELECT ON windlass_outbox.format TO shop",
        "GRANT SELECT, UPDATE, DELETE ON windlass_outbox.jobs TO shop",
    }
    assert shown == needed
    shop = postgres_shop(is_migrated=False)
    owned = Shop(shop.url.url.replace(f"//{WORKER}@", f"//{OWNER}@"), shop.connect)
    migrate(owned)
    database = shop.url.location.rpartition("/")[2]
    with shared_server().connect(database, OWNER) as connection:
        for line in sorted(needed, reverse=True):
            connection.execute(line.replace(" TO shop", f" TO {WORKER}").encode())
    rows = open_outbox(shop.url)
    rows.check_format()
    assert rows.take(1, 1) == []
    rows.close()


def rights_of(schema: str) -> Block:
    (block,) = [one for one in blocks(GUIDE) if f"USAGE ON SCHEMA {schema} " in one.text]
    return block


def test_a_role_with_the_rights_of_the_guide_enqueues_in_its_transaction() -> None:
    with without_tables(shared_server()) as database:
        database.open(OWNER).migrate()
        database.execute(rights_of("windlass").text.replace("TO shop;", f"TO {WORKER};"))
        url = database.server.url(database.name)
        with Windlass(url) as app, psycopg.connect(url) as connection:
            confirm = app.task_named("confirm").using(connection=connection)
            job = confirm.using(idempotency_key="order 1", run_after="1h").enqueue(1)
            connection.commit()
            assert job.info().state == State.SCHEDULED


def test_every_library_is_in_the_table() -> None:
    told = read(GUIDE).partition("## Connections")[2].partition("## FastAPI")[0]
    for name in [*ON_POSTGRESQL, *ON_SQLITE]:
        assert name.split()[0].split(",")[0] in told, name
