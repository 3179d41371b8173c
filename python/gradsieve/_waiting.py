"""Waits that Ctrl-C ends. Python runs signal handlers on the main thread between two calls of C, so there a wait is cut
into slices; the C ABI loses nothing by a timeout and goes on with the next call. Other threads wait in one piece.
Every wait ends at its deadline."""
from __future__ import annotations

import math
import re
import threading
import time
from typing import Callable

from ._library import Library
from .errors import Busy, InvalidArgument, Timeout, error_of

SLICE_MS = 100  # how late a signal may be noticed
_BUSY_PAUSE_S = 0.05  # as the library's own, between two requests to attach
_LONGEST_S = 10 * 365 * 24 * 3600.0
_WAITED = re.compile(r"waited \d+ ms")


def checked_timeout(timeout: float) -> float:
    """Seconds as a float. Errors: TypeError (None, say: every wait has a deadline), InvalidArgument (NaN)."""
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
        raise TypeError(f"timeout is {timeout!r}: allowed is a number of seconds; every wait has a deadline")
    if math.isnan(timeout):
        raise InvalidArgument("timeout is nan: allowed is a number of seconds; pass one")
    return min(max(float(timeout), 0.0), _LONGEST_S)


def _slice_ms(deadline: float) -> int:
    left_ms = math.ceil(max(deadline - time.monotonic(), 0.0) * 1000)
    return min(left_ms, SLICE_MS) if threading.current_thread() is threading.main_thread() else left_ms


def wait_for(library: Library, call: Callable[[int], int], timeout: float, *, is_busy_late: bool = False) -> None:
    """Runs `call(timeout_ms)`, which gives back a status, until it is neither late nor past `timeout` seconds.
    `is_busy_late`: busy counts as late, as while the last run of a job is leaving. Raises what went wrong, also
    KeyboardInterrupt."""
    seconds = checked_timeout(timeout)
    deadline = time.monotonic() + seconds
    while status := call(_slice_ms(deadline)):
        text = library.last_error()
        is_late = status == Timeout.code or (is_busy_late and status == Busy.code)
        if not is_late:
            raise error_of(status, text)
        if time.monotonic() >= deadline:
            raise error_of(status, _WAITED.sub(f"waited {round(seconds * 1000)} ms", text, count=1))
        if status == Busy.code:
            time.sleep(min(_BUSY_PAUSE_S, max(deadline - time.monotonic(), 0.0)))
