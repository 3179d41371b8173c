"""Ctrl-C, SIGTERM and a closed terminal end the command in good order. Python drops an exception that a handler raises inside a
destructor or a fork's own hooks, so that what came is also kept, and raised again at the next `check`. Main thread only."""
import signal

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_came = []


class Ended(BaseException):
    """Not an Exception: nothing on the way may take it for a fault. number: of the signal."""

    def __init__(self, number):
        super().__init__(number)
        self.number = number


def _on_signal(number, _):
    _came.append(number)
    raise Ended(number)


def catch():
    """From here on; what is ignored, as SIGHUP under nohup, stays ignored."""
    for number in SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _on_signal)


def check():
    """Between waits. Errors: Ended, if a signal came and its exception was dropped."""
    if _came:
        raise Ended(_came[0])
