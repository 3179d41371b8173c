"""What goes wrong, as exceptions: one class for each code of the C ABI (docs/client.md, "Errors"), with its words.

A text has four parts: what, the value seen, what is allowed, what to do. Exceptions belong to who catches them; any
thread."""
from __future__ import annotations


class GradsieveError(RuntimeError):
    """Everything that gradsieve raises. `code` is the C ABI's number, `text` the words without the code's name."""

    code: int = 0
    name: str = "unknown"

    def __init__(self, text: str, code: int | None = None) -> None:
        if code is not None:
            self.code = code
        self.text = text
        super().__init__(f"{self.name}: {text}")

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.text, self.code))


class InvalidArgument(GradsieveError, ValueError):
    """A value is out of range, has the wrong shape or type, or the step is not the next one: fix the call."""

    code, name = 1, "invalid-argument"


class NotFound(GradsieveError):
    """No such group, or no file to read: name one that exists."""

    code, name = 2, "not-found"


class AlreadyExists(GradsieveError):
    """The rank, the run or the tensor's name is taken: end the other holder or choose another name."""

    code, name = 3, "already-exists"


class FailedPrecondition(GradsieveError):
    """Not started, already left, or a forked child: fix the order of calls."""

    code, name = 4, "failed-precondition"


class Unavailable(GradsieveError):
    """The daemon is not there or died: start it, then make a new job; it goes on at `first_step`."""

    code, name = 5, "unavailable"


class Timeout(GradsieveError, TimeoutError):
    """Late, and nothing is lost: call again."""

    code, name = 6, "timeout"


class StepFailed(GradsieveError):
    """This step has no result on any rank: go on with the next one."""

    code, name = 7, "step-failed"


class ResourceExhausted(GradsieveError):
    """A limit that the text names: raise it, or ask for less."""

    code, name = 8, "resource-exhausted"


class PermissionDenied(GradsieveError):
    """This user may not: use one who may."""

    code, name = 9, "permission-denied"


class Corrupt(GradsieveError):
    """Bytes that make no sense: install matching versions, report it otherwise."""

    code, name = 10, "corrupt"


class NonFinite(StepFailed):
    """A rank handed in a NaN or an infinity: lower the loss scale, go on with the next step."""

    code, name = 11, "non-finite"


class Busy(GradsieveError):
    """An earlier call is open: wait for it first."""

    code, name = 12, "busy"


class VersionMismatch(GradsieveError):
    """Package, library or daemon differ, and the text names them: install matching ones."""

    code, name = 13, "version-mismatch"


class Unimplemented(GradsieveError):
    """Not offered yet; the text says what is."""

    code, name = 14, "unimplemented"


class InternalError(GradsieveError):
    """A mistake of gradsieve: report the text."""

    code, name = 15, "internal"


class Mismatch(GradsieveError):
    """Ranks or nodes disagree; the first difference is named."""

    code, name = 16, "mismatch"


class PeerFailed(GradsieveError):
    """Another rank or node is gone and the job has ended: make a new one."""

    code, name = 17, "peer-failed"


class Cancelled(GradsieveError):
    """The job was left with `detach`."""

    code, name = 18, "cancelled"


_CLASSES: dict[int, type[GradsieveError]] = {
    kind.code: kind
    for kind in (InvalidArgument, NotFound, AlreadyExists, FailedPrecondition, Unavailable, Timeout, StepFailed,
                 ResourceExhausted, PermissionDenied, Corrupt, NonFinite, Busy, VersionMismatch, Unimplemented,
                 InternalError, Mismatch, PeerFailed, Cancelled)
}


def error_of(code: int, text: str) -> GradsieveError:
    """The exception for a code of the C ABI; a code that this package does not know gives a plain GradsieveError."""
    return _CLASSES.get(code, GradsieveError)(text, code)
