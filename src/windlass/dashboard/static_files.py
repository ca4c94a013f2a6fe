"""The files of the front end, read and compressed once, and kept in memory.

1. `read_files` reads the folder. A request names a file exactly, so no path leads out of the folder
   and no folder is listed.
2. `StaticFile.answer` sends the gzip form to a client that accepts it. Both forms have an ETag of
   their own and the header `Vary`, so a cache never mixes them up. Browsers keep the files and ask
   with their ETag whether they have changed.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from starlette.responses import Response

FOLDER: Final = Path(__file__).parent / "static"
#: The types of files that are served, by their ending.
TYPES: Final[Mapping[str, str]] = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


class StaticFile(NamedTuple):
    """A file as it is sent: as it is stored, and compressed."""

    content: bytes
    compressed: bytes
    media_type: str
    etag: str
    compressed_etag: str

    def answer(self, headers: Mapping[str, str]) -> Response:
        """The file for a request with these headers; 304 for a browser that has it."""
        is_gzip = accepts_gzip(headers.get("accept-encoding", ""))
        etag = self.compressed_etag if is_gzip else self.etag
        sent = {"ETag": etag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
        if _matches(etag, headers.get("if-none-match")):
            return Response(status_code=304, headers=sent)
        sent["Content-Type"] = self.media_type
        if not is_gzip:
            return Response(self.content, headers=sent)
        return Response(self.compressed, headers={**sent, "Content-Encoding": "gzip"})


def read_files(folder: Path = FOLDER) -> dict[str, StaticFile]:
    """Read all files of the folder, by their paths in it."""
    return {
        file.relative_to(folder).as_posix(): _read(file)
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file.suffix in TYPES
    }


def accepts_gzip(accepted: str) -> bool:
    """Whether a client with this `Accept-Encoding` takes gzip. `*` stands for all that the header
    does not name, and a weight of 0 refuses a coding."""
    weights = dict(_read_coding(one) for one in accepted.lower().split(","))
    return weights.get("gzip", weights.get("*", False))


def _read_coding(text: str) -> tuple[str, bool]:
    """The name of a coding, and whether it is accepted."""
    name, *parameters = (part.strip() for part in text.split(";"))
    weights = [one[2:].strip() for one in parameters if one.startswith("q=")]
    return name, not any(weight.strip("0.") == "" for weight in weights)


def _matches(etag: str, if_none_match: str | None) -> bool:
    """Compare weakly: a proxy that compresses the file makes its ETag a weak one."""
    if if_none_match is None:
        return False
    known = {one.strip().removeprefix("W/") for one in if_none_match.split(",")}
    return bool(known & {etag, "*"})


def _read(file: Path) -> StaticFile:
    content = file.read_bytes()
    digest = hashlib.sha256(content).hexdigest()[:32]
    compressed = gzip.compress(content, mtime=0)  # the same bytes at every instance
    return StaticFile(content, compressed, TYPES[file.suffix], f'"{digest}"', f'"{digest}-gzip"')
