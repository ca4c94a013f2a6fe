"""The tasks of the guide about exactly once end together with their writes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.docs.pages import DOCS, blocks
from tests.engine.postgres.databases import without_tables
from tests.postgres_server import OWNER, shared_server

GUIDE = DOCS / "guides" / "exactly-once.md"
TABLES = (
    "CREATE TABLE accounts (id integer, cents integer)",
    "CREATE TABLE orders (id integer, paid boolean)",
    "CREATE TABLE pictures (id integer, small bytea)",
    "INSERT INTO accounts VALUES (1, 1000)",
    "INSERT INTO orders VALUES (7, false)",
    "INSERT INTO pictures VALUES (3, NULL)",
    f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {OWNER}",
)
#: What the guide leaves out.
BEFORE = """
from windlass import Context, Windlass

def shrink(picture_id: int) -> bytes:
    return b"small"
"""
AFTER = """
@app.task
def receipt(order_id: int) -> str:
    return f"receipt {order_id}"

with app.worker():
    print(pay.enqueue(7, 50).result(timeout=30), resize.enqueue(3).result(timeout=30))
    print(*(job.task for job in app.jobs.list(task="shop.receipt")))
"""


def test_the_tasks_of_the_guide_end_with_their_writes(tmp_path: Path) -> None:
    shown = [block.text for block in blocks(GUIDE) if "def " in block.text]
    with without_tables(shared_server()) as database:
        database.execute(*TABLES)
        url = database.server.url(database.name, user=OWNER)
        text = "\n".join([BEFORE, *shown, AFTER]).replace("postgresql://localhost/shop", url)
        (tmp_path / "shop.py").write_text(text, encoding="utf-8")
        ran = subprocess.run(
            [sys.executable, "shop.py"], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, ran.stderr
        assert ran.stdout == "None 5\nshop.receipt\n"
        assert database.execute("SELECT cents FROM accounts") == [(950,)]
        assert database.execute("SELECT paid FROM orders") == [(True,)]
        assert database.execute("SELECT small FROM pictures") == [(b"small",)]
