"""Small PNG files: `shrink` stores a picture with 256 colours, in about a third of its size.

A picture of a page has few colours, and many shades at the edges of letters.

1. `read_rows` undoes the filters of a PNG of 8-bit RGB or RGBA.
2. `choose_colours` takes colours that are frequent and far from those it has, and gives each other
   colour the nearest of them.
3. `shrink` writes the picture without filters.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections import Counter
from collections.abc import Iterator
from typing import Final

SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
#: The bytes of a pixel by the colour type of the file.
PIXELS: Final = {2: 3, 6: 4}
COLOURS: Final = 256


def shrink(picture: bytes) -> bytes:
    """The same picture with at most 256 colours. It must have no transparency."""
    width, height, rows = read_rows(picture)
    lines = [[row[at : at + 3] for at in range(0, len(row), len(row) // width)] for row in rows]
    palette, places = choose_colours(Counter(colour for line in lines for colour in line))
    body = b"".join(b"\0" + bytes(places[colour] for colour in line) for line in lines)
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    return SIGNATURE + b"".join(
        [
            _chunk(b"IHDR", header),
            _chunk(b"PLTE", b"".join(palette)),
            _chunk(b"IDAT", zlib.compress(body, 9)),
            _chunk(b"IEND", b""),
        ]
    )


def read_rows(picture: bytes) -> tuple[int, int, list[bytes]]:
    """The width, the height, and the pixels of each row."""
    chunks = list(_chunks(picture))
    width, height, depth, colour_type = struct.unpack(">IIBB", chunks[0][1][:10])
    if depth != 8 or colour_type not in PIXELS:
        raise ValueError(
            f"expected a PNG of 8-bit RGB or RGBA, found {depth} bits and colour type {colour_type}"
        )
    size = PIXELS[colour_type]
    data = zlib.decompress(b"".join(content for kind, content in chunks if kind == b"IDAT"))
    rows: list[bytes] = []
    above = bytes(width * size)
    for start in range(0, len(data), width * size + 1):
        above = _unfilter(data[start], data[start + 1 : start + 1 + width * size], above, size)
        rows.append(above)
    return width, height, rows


def _unfilter(kind: int, given: bytes, above: bytes, size: int) -> bytes:
    """Undo the filter of one row."""
    if kind == 0:
        return given
    row = bytearray(size) + given  # a black pixel to the left
    corner = bytes(size) + above
    for at in range(size, len(row)):
        left, up = row[at - size], above[at - size]
        if kind == 1:
            guess = left
        elif kind == 2:
            guess = up
        elif kind == 3:
            guess = (left + up) // 2
        else:
            guess = _paeth(left, up, corner[at - size])
        row[at] = (row[at] + guess) & 255
    return bytes(row[size:])


def _paeth(left: int, up: int, corner: int) -> int:
    estimate = left + up - corner
    return min((left, up, corner), key=lambda one: abs(estimate - one))


def choose_colours(counted: Counter[bytes]) -> tuple[list[bytes], dict[bytes, int]]:
    """The palette, and the place in it for each colour."""
    palette: list[bytes] = []
    places = dict.fromkeys(counted, 0)
    distances = dict.fromkeys(counted, 3 * 256**2)
    for place in range(min(COLOURS, len(counted))):
        chosen = max(counted, key=lambda one: distances[one] * math.sqrt(counted[one]))
        palette.append(chosen)
        for colour, known in distances.items():
            distance = _distance(chosen, colour)
            if distance < known:
                distances[colour], places[colour] = distance, place
    return palette, places


def _distance(one: bytes, other: bytes) -> int:
    red, green, blue = one[0] - other[0], one[1] - other[1], one[2] - other[2]
    return red * red + green * green + blue * blue


def _chunks(picture: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = len(SIGNATURE)
    while at < len(picture):
        (length,) = struct.unpack(">I", picture[at : at + 4])
        yield picture[at + 4 : at + 8], picture[at + 8 : at + 8 + length]
        at += length + 12


def _chunk(kind: bytes, content: bytes) -> bytes:
    return (
        struct.pack(">I", len(content))
        + kind
        + content
        + struct.pack(">I", zlib.crc32(kind + content))
    )
