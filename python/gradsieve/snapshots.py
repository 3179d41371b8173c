"""Snapshots that a job asks its nodes to keep: what comes back of a request, and the library's objects for it. Plain
values; any thread."""
from __future__ import annotations

import ctypes
from dataclasses import dataclass

from . import _library


@dataclass(frozen=True)
class SnapshotPart:
    """What one node keeps of a group at a step. ranks: those of the job on that node. digest: of the values, equal for equal
    values on every machine. size_bytes: of the values."""

    node: str
    ranks: tuple[int, ...]
    digest: int
    size_bytes: int


@dataclass(frozen=True)
class Snapshot:
    """What all nodes keep of a group at a step, one part for each node, in the order of their lowest ranks."""

    group: str
    step: int
    parts: tuple[SnapshotPart, ...]

    def part_of(self, rank: int) -> SnapshotPart | None:
        """The part of the node with that rank."""
        return next((part for part in self.parts if rank in part.ranks), None)


def take_snapshot(library: _library.Library, pointer: ctypes.c_void_p, group: str) -> Snapshot:
    """Copies a gradsieve_snapshot and frees it."""
    try:
        parts = []
        for index in range(library.plain["snapshot_part_count"](pointer)):
            raw = _library.RawSnapshotPart(ctypes.sizeof(_library.RawSnapshotPart))
            library.call("snapshot_part", pointer, index, ctypes.byref(raw))
            parts.append(SnapshotPart(raw.node.decode("utf-8", "replace"), tuple(raw.ranks[place] for place in range(raw.rank_count)),
                                      raw.digest, raw.bytes))
        return Snapshot(group, int(library.plain["snapshot_step"](pointer)), tuple(parts))
    finally:
        library.plain["snapshot_free"](pointer)


def take_bytes(library: _library.Library, pointer: ctypes.c_void_p) -> bytes:
    """Copies a gradsieve_bytes and frees it."""
    try:
        return ctypes.string_at(library.plain["bytes_data"](pointer), library.plain["bytes_count"](pointer))
    finally:
        library.plain["bytes_free"](pointer)
