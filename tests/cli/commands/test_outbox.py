"""What `windlass migrate`, `doctor` and `status` do with an outbox."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from tests.cli.conftest import Typing
from tests.cli.shell import Shell
from tests.outbox.databases import Shop, migrate, postgres_shop, sqlite_shop
from tests.postgres_server import OWNER, WORKER
from tests.redis_server import free_port
from windlass import Windlass
from windlass.outbox.connect import open_outbox
from windlass.outbox.rows import Postponed


@pytest.fixture(params=["postgresql", "sqlite"])
def bare(request: pytest.FixtureRequest, tmp_path: Path) -> Shop:
    """A shop without the tables, whose url is that of the owner."""
    folder = tmp_path / "data"
    folder.mkdir()
    if request.param == "sqlite":
        return sqlite_shop(folder, is_migrated=False)
    shop = postgres_shop(is_migrated=False)
    url = shop.url.url.replace(f"//{WORKER}@", f"//{OWNER}@")
    return Shop(url, lambda: psycopg.connect(url))


@pytest.fixture
def shop(bare: Shop) -> Shop:
    migrate(bare)
    return bare


@pytest.fixture
def app(shell: Shell, shop: Shop) -> Iterator[Windlass]:
    with Windlass(f"{shell.url}?durability=normal", outbox=shop.url.url) as app:
        app.engine.migrate()
        app.task(name="tasks.add")(add)
        yield app


def add(a: int, b: int = 2) -> int:
    return a + b


def enqueue(app: Windlass, shop: Shop, number: int = 1) -> list[str]:
    with shop.connection() as connection:
        task = app.task_named("tasks.add").using(connection=connection)
        ids = [task.enqueue(1).id for _ in range(number)]
        connection.commit()
    return ids


def age_all(shop: Shop) -> None:
    table = "windlass_outbox_jobs" if shop.is_sqlite else "windlass_outbox.jobs"
    with shop.connection() as connection:
        connection.execute(f"UPDATE {table} SET created_ms = created_ms - 61000")  # noqa: S608  # our own names
        connection.commit()


# ------------------------------------------------------------------------------------------ migrate


def test_migrate_makes_the_tables_before_the_engine_is_used(
    shell: Shell, bare: Shop, type_here: Typing
) -> None:
    ran = type_here("migrate", "--app", "tasks:app", WINDLASS_OUTBOX=bare.url.url)
    assert ran.code == 0, ran.err
    assert f"{bare.url.location}: the tables of the outbox have format 1." in ran.err
    assert "nothing to migrate; it was never used" in ran.err
    assert not shell.database.exists()
    with closing(open_outbox(bare.url)) as rows:
        rows.check_format()


def test_migrate_does_both(shell: Shell, shop: Shop, app: Windlass, type_here: Typing) -> None:
    ran = type_here("migrate", "--app", "tasks:app", WINDLASS_OUTBOX=shop.url.url)
    assert ran.code == 0
    assert "the tables of the outbox have format 1" in ran.err
    assert "nothing to migrate; the jobs have format" in ran.err
    ran = type_here("migrate", "--app", "tasks:app", "--json", WINDLASS_OUTBOX=shop.url.url)
    assert ran.json["outbox"] == 1
    assert ran.json["moved"] == 0


def test_without_an_outbox_an_unused_engine_is_refused(shell: Shell, type_here: Typing) -> None:
    ran = type_here("migrate", "--app", "tasks:app")
    assert ran.code == 1
    assert "There is no database" in ran.err


def test_the_sql_for_other_tools(shell: Shell, bare: Shop, type_here: Typing) -> None:
    """It needs neither the database nor the engine."""
    environment = {
        "WINDLASS_OUTBOX": f"{bare.url.url}?namespace=mail",
        "WINDLASS_URL": f"redis://127.0.0.1:{free_port()}/0",
    }
    ran = type_here("migrate", "--sql", **environment)
    assert ran.code == 0, ran.err
    assert "windlass_outbox" not in ran.out
    with bare.connection() as connection:
        if bare.is_sqlite:
            connection.executescript(ran.out)
        else:
            connection.execute(ran.out)
        connection.commit()
    mail = Shop(environment["WINDLASS_OUTBOX"], bare.connect)
    with closing(open_outbox(mail.url)) as rows:
        rows.check_format()


def test_the_sql_of_the_app(shell: Shell, bare: Shop, type_here: Typing) -> None:
    text = (shell.folder / "tasks.py").read_text()
    (shell.folder / "tasks.py").write_text(
        text.replace("durability=normal", f'durability=normal", outbox="{bare.url.url}')
    )
    ran = type_here("migrate", "--sql", "--app", "tasks:app")
    assert "CREATE TABLE windlass_outbox" in ran.out


def test_there_is_no_sql_without_an_outbox(shell: Shell, type_here: Typing) -> None:
    ran = type_here("migrate", "--sql", "--app", "tasks:app")
    assert ran.code == 1
    assert "Only PostgreSQL has tables that other tools can migrate" in ran.err


# ------------------------------------------------------------------------------------------- doctor


def finding(ran: dict[str, list[dict[str, str]]]) -> dict[str, str]:
    (found,) = [one for one in ran["findings"] if one["subject"] == "outbox"]
    return found


def examine(type_here: Typing, shop: Shop) -> tuple[int, dict[str, str]]:
    ran = type_here("doctor", "--app", "tasks:app", "--json", WINDLASS_OUTBOX=shop.url.url)
    return ran.code, finding(json.loads(ran.out))


def test_the_doctor_finds_nothing_wrong(
    shell: Shell, shop: Shop, app: Windlass, type_here: Typing
) -> None:
    code, found = examine(type_here, shop)
    assert (code, found["grade"]) == (0, "ok")
    assert found["text"] == f"no job waits in {shop.url.location}"
    enqueue(app, shop, 2)
    code, found = examine(type_here, shop)
    assert (code, found["grade"]) == (0, "ok")
    assert found["text"].startswith(f"2 jobs wait in {shop.url.location}")


def test_the_doctor_misses_a_relay(
    shell: Shell, shop: Shop, app: Windlass, type_here: Typing
) -> None:
    enqueue(app, shop, 2)
    age_all(shop)
    code, found = examine(type_here, shop)
    assert (code, found["grade"]) == (1, "problem")
    assert "2 jobs wait in" in found["text"]
    assert "the first one for 1m1s: no worker relays them. Start one" in found["text"]


def test_the_doctor_names_a_refused_job(
    shell: Shell, shop: Shop, app: Windlass, type_here: Typing
) -> None:
    (id,) = enqueue(app, shop)
    with closing(open_outbox(shop.url)) as rows:
        (row,) = rows.take(1, 1)
        rows.settle([], [Postponed(row.position, 60_000, "The row is damaged.")])
    code, found = examine(type_here, shop)
    assert (code, found["grade"]) == (1, "problem")
    assert found["text"] == (
        f"the engine refuses 1 job of {shop.url.location}: {id} after 1 try, The row is damaged. "
        "Fix the cause; jobs are tried again every ten minutes"
    )


def test_the_doctor_without_the_tables(shell: Shell, bare: Shop, type_here: Typing) -> None:
    with Windlass(shell.url) as app:
        app.engine.migrate()
    code, found = examine(type_here, bare)
    assert (code, found["grade"]) == (1, "problem")
    assert "Run `windlass migrate` once" in found["text"]


def test_the_doctor_without_the_engine(shell: Shell, shop: Shop, type_here: Typing) -> None:
    """Both are examined, and both have their finding."""
    url = f"redis://127.0.0.1:{free_port()}/0"
    ran = type_here("doctor", "--json", WINDLASS_URL=url, WINDLASS_OUTBOX=shop.url.url)
    assert ran.code == 3
    grades = {one["subject"]: one["grade"] for one in json.loads(ran.out)["findings"]}
    assert grades["outbox"] == "ok"
    assert "problem" in grades.values()


# ------------------------------------------------------------------------------------------- status


def test_the_status(shell: Shell, shop: Shop, app: Windlass, type_here: Typing) -> None:
    enqueue(app, shop, 2)
    age_all(shop)
    ran = type_here("status", "--app", "tasks:app", WINDLASS_OUTBOX=shop.url.url)
    assert f"Outbox: 2 jobs wait in {shop.url.location}, the first one for 1m1s." in ran.err
    ran = type_here("status", "--app", "tasks:app", "--json", WINDLASS_OUTBOX=shop.url.url)
    assert ran.json["outbox"]["waiting"] == 2
    assert ran.json["outbox"]["refused"] == 0


def test_the_status_without_the_outbox(shell: Shell, tmp_path: Path, type_here: Typing) -> None:
    with Windlass(shell.url) as app:
        app.engine.migrate()
    url = f"sqlite:///{tmp_path}/gone.db"
    ran = type_here("status", "--app", "tasks:app", WINDLASS_OUTBOX=url)
    assert ran.code == 0
    assert "Outbox: There is no database" in ran.err
    ran = type_here("status", "--app", "tasks:app", "--json", WINDLASS_OUTBOX=url)
    assert "There is no database" in ran.json["outbox"]["error"]
    assert type_here("status", "--app", "tasks:app", "--json").json["outbox"] is None
