"""The daemon's status document, read from its status page (docs/status-document.md says what each key means). Asks
nobody, so it answers while the daemon hangs or is gone. Any thread; never waits."""
from __future__ import annotations

import json
import os
import stat
import struct
from pathlib import Path
from typing import Any

from .errors import Corrupt, NotFound, PermissionDenied, VersionMismatch

# docs/shared-memory.md, "Status page".
_MAGIC = b"GSVSTAT\0"
_VERSION = 1
_HEADER_BYTES = 4096
_HEAD_BYTES = 64
_CAPACITY_LIMIT_BYTES = 256 << 20  # larger than any version's copy: bounds what a damaged header makes us read
_LOOKS = 3  # the writer changes the copies in turn: a reader that missed both begins again


def usual_socket_paths() -> list[str]:
    """Where the daemon's socket may be if nothing names it, in the order in which the library looks."""
    runtime, own = os.environ.get("XDG_RUNTIME_DIR", ""), []
    if runtime.startswith("/"):
        own = [f"{runtime}/gradsieve/gradsieved.sock"]
    elif os.getuid() != 0:  # root's daemon is the system's
        own = [f"/run/user/{os.getuid()}/gradsieve/gradsieved.sock"]
    return [*own, "/run/gradsieve/gradsieved.sock"]


def _page_path(socket_path: str | None) -> Path:
    """As `gradsieve status` finds it. A stopped daemon takes its socket away but leaves its page: one beside a socket is
    before any other."""
    chosen = socket_path or os.environ.get("GRADSIEVE_SOCKET")
    paths = [chosen] if chosen else usual_socket_paths()
    pages = [Path(path).parent / "status" for path in paths]
    for path, page in zip(paths, pages):
        if os.path.exists(path):
            return page
    return next((page for page in pages if page.exists()), pages[-1])


def _copies(page: Any, capacity: int) -> list[tuple[int, int, int]]:
    """(sequence, offset of the document, its length) of both copies, the newer first; those being written, or never
    written, left out."""
    found = []
    for copy in range(2):
        offset = _HEADER_BYTES + copy * (_HEAD_BYTES + capacity)
        sequence, length = struct.unpack("<QQ", os.pread(page, 16, offset))
        if sequence > 0 and sequence % 2 == 0 and length <= capacity:
            found.append((sequence, offset, length))
    return sorted(found, reverse=True)


def _read_document(page: int, path: Path) -> dict[str, Any]:
    """By the sequences alone: the standard library has no XXH3. What else is there is that it has to be JSON."""
    if not stat.S_ISREG(os.fstat(page).st_mode):
        raise Corrupt(f"{path} is no regular file: allowed is a status page of gradsieved; name its socket")
    header = os.pread(page, 48, 0)
    if len(header) < 48 or header[:8] != _MAGIC:
        raise Corrupt(f"{path} begins with {header[:8]!r}: allowed is a status page of gradsieved; name its socket")
    version, = struct.unpack_from("<I", header, 8)
    if version != _VERSION:
        raise VersionMismatch(f"{path} is a status page of version {version}: allowed is {_VERSION}; install matching "
                              "versions of daemon and package")
    capacity, = struct.unpack_from("<Q", header, 40)
    if capacity > _CAPACITY_LIMIT_BYTES:
        raise Corrupt(f"{path} says copies of {capacity} bytes: allowed are {_CAPACITY_LIMIT_BYTES}; restart gradsieved")
    for _ in range(_LOOKS):
        for sequence, offset, length in _copies(page, capacity):
            text = os.pread(page, length, offset + _HEAD_BYTES)
            if struct.unpack("<Q", os.pread(page, 8, offset))[0] != sequence:
                continue  # overwritten meanwhile
            try:
                document = json.loads(text)
            except ValueError:
                continue
            if isinstance(document, dict):
                return document
    raise Corrupt(f"{path}: both copies are being written: allowed is one whole document; look again")


def read_status(socket_path: str | None = None) -> dict[str, Any]:
    """The newest document of the daemon at `socket_path` (None: $GRADSIEVE_SOCKET, else the usual places). Whether that
    daemon lives is what `gradsieve status` says. Errors: NotFound (no daemon has run there), PermissionDenied,
    VersionMismatch, Corrupt."""
    path = _page_path(socket_path)
    try:
        page = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe does not hold us
    except FileNotFoundError:
        raise NotFound(f"no status page at {path}: allowed is the folder of a daemon's socket; start gradsieved, or name "
                       "its socket") from None
    except PermissionError:
        raise PermissionDenied(f"reading {path} as user {os.getuid()}: allowed is who may attach; join the group "
                               "gradsieve") from None
    try:
        return _read_document(page, path)
    except struct.error:
        raise Corrupt(f"{path} is cut off: allowed is a whole status page; restart gradsieved") from None
    finally:
        os.close(page)
