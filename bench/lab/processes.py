"""Processes in network namespaces, with a folder for their files; both end with the object. Every wait has a deadline."""
import ctypes
import json
import selectors
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from . import ending
from .held import Held

SOURCE = Path(__file__).resolve().parents[2]
LEAVE_TIMEOUT_S = 10
LOOK_S = 1  # between two looks for a signal


class ProcessFailed(RuntimeError):
    """A daemon or a rank ended, or did not answer; with what it said last."""


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class Processes(Held):
    """Whoever derives from it starts daemons in `_make`. namespaces: their names. Errors: ProcessFailed."""

    def __init__(self, namespaces, prefix):
        self._namespaces = namespaces
        self._folder = Path(tempfile.mkdtemp(prefix=prefix))
        self._processes, self._logs = [], {}

    def close(self):
        for process in reversed(self._processes):
            process.kill()
            process.wait()
        self._processes.clear()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _spawn(self, node, name, arguments, **options):
        ending.check()
        log = self._folder / f"{name}.log"
        with open(log, "wb") as output:
            process = subprocess.Popen(["ip", "netns", "exec", self._namespaces[node], *map(str, arguments)], stderr=output,
                                       preexec_fn=die_with_parent, start_new_session=True, **options)
        self._processes.append(process)
        self._logs[process.pid] = name, log
        return process

    def _failed(self, process, what):
        name, log = self._logs[process.pid]
        return ProcessFailed(f"{name} {what}; it said last:\n" + "\n".join(log.read_text(errors="replace").splitlines()[-15:]))

    def _wait_for_file(self, process, path, timeout_s):
        deadline = time.monotonic() + timeout_s
        while not path.exists():
            ending.check()
            if process.poll() is not None or time.monotonic() > deadline:
                raise self._failed(process, f"made no '{path.name}'")
            time.sleep(0.02)

    def _answer(self, process, timeout_s):
        """The next line, of JSON, of a process that writes a line in one piece and no second one before it is asked."""
        deadline = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while not selector.select(LOOK_S):
                ending.check()
                if time.monotonic() > deadline:
                    raise self._failed(process, f"did not answer in {timeout_s} s")
        ending.check()
        line = process.stdout.readline()
        if not line:
            process.wait(LEAVE_TIMEOUT_S)
            raise self._failed(process, f"ended with {process.returncode}")
        return json.loads(line)
