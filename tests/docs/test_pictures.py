"""The pictures of the dashboard: a script makes them, and every one that a page names is there."""

from __future__ import annotations

import os
import re
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from tests.dashboard.browser.chromium import find_chromium
from tests.docs.pages import PROJECT
from tools.palette_png import SIGNATURE, read_rows, shrink
from tools.screenshots import PICTURES, STATIC

NAMES = {f"dashboard-{page}-{one}.png" for page, some in PICTURES.items() for one in some}
#: All pictures together, in bytes.
MOST_BYTES = 400_000


def chunk(kind: bytes, content: bytes) -> bytes:
    check = struct.pack(">I", zlib.crc32(kind + content))
    return struct.pack(">I", len(content)) + kind + content + check


def picture(rows: list[bytes]) -> bytes:
    """A PNG of RGB with these rows, each with its filter before it."""
    header = struct.pack(">IIBBBBB", (len(rows[0]) - 1) // 3, len(rows), 8, 2, 0, 0, 0)
    body = zlib.compress(b"".join(rows))
    return SIGNATURE + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def test_the_filters_of_a_picture_are_undone() -> None:
    """The same two pixels in five rows: plain, and by the filters left, up, mean and Paeth."""
    first, second = bytes((200, 100, 50)), bytes((210, 90, 55))
    step = bytes((10, 246, 5))  # from the first pixel to the second, modulo 256
    half = bytes((100, 50, 25))
    mean = bytes(
        later - (left + up) // 2 & 255
        for later, left, up in zip(second, first, second, strict=True)
    )
    rows = [
        b"\0" + first + second,
        b"\1" + first + step,
        b"\2" + bytes(6),
        b"\3" + half + mean,
        b"\4" + bytes(6),
    ]
    assert read_rows(picture(rows)) == (2, 5, [first + second] * 5)


def test_a_picture_of_few_colours_stays_the_same() -> None:
    rows = [bytes(value for at in range(16) for value in (at, line, 7)) for line in range(16)]
    small = shrink(picture([b"\0" + row for row in rows]))
    width, height, depth, kind = struct.unpack(">IIBB", small[16:26])
    assert (width, height, depth, kind) == (16, 16, 8, 3)
    parts = small.split(b"PLTE")[1]
    palette = [parts[at : at + 3] for at in range(0, 768, 3)]
    pixels = zlib.decompress(small.split(b"IDAT")[1][:-16])
    lines = [pixels[at + 1 : at + 17] for at in range(0, len(pixels), 17)]
    assert [b"".join(palette[place] for place in line) for line in lines] == rows


def test_every_picture_that_a_page_names_is_there() -> None:
    pages = [PROJECT / "README.md", *(PROJECT / "docs").rglob("*.md")]
    named = {
        name for page in pages for name in re.findall(r"(dashboard-[\w-]+\.png)", page.read_text())
    }
    assert named == NAMES == {file.name for file in STATIC.glob("dashboard-*.png")}


def test_pictures_are_small() -> None:
    sizes = {name: (STATIC / name).stat().st_size for name in NAMES}
    assert sum(sizes.values()) < MOST_BYTES, sizes


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_script_takes_every_picture(tmp_path: Path) -> None:
    try:
        find_chromium()
    except FileNotFoundError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    folders = ["--review", str(tmp_path / "review"), "--pictures", str(tmp_path / "pictures")]
    done = subprocess.run(
        [sys.executable, "-m", "tools.screenshots", *folders],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert {file.name for file in (tmp_path / "pictures").iterdir()} == NAMES
    assert len(list((tmp_path / "review").iterdir())) >= 4 * 12
