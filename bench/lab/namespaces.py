"""Network namespaces. Needs root. They end with the object; what a killed run left behind is removed by the next one."""
import os
import subprocess
from pathlib import Path

from .held import Held

LATENCY = "50ms"  # of `tc tbf`
NAMESPACES = Path("/run/netns")


class LinkError(RuntimeError):
    """The link is not what it is meant to be: what was seen, what is allowed, what to do."""


def run(*arguments):
    """A command of iproute2. Errors: LinkError with what it said."""
    done = subprocess.run(arguments, capture_output=True, text=True)
    if done.returncode:
        raise LinkError(f"`{' '.join(arguments)}` ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def remove_stale(prefix):
    """Namespaces of runs that were killed: their name ends in the pid that made them."""
    for entry in NAMESPACES.glob(prefix + "*") if NAMESPACES.is_dir() else ():
        pid = entry.name.rpartition("-")[2]
        if pid.isdigit() and not Path("/proc", pid).exists():
            run("ip", "netns", "delete", entry.name)


class Namespaces(Held):
    """Whoever derives from it makes them in `_make`. names: PREFIX, one of `parts`, the pid. Errors: LinkError."""

    def __init__(self, prefix, parts):
        remove_stale(prefix)
        self.names = [f"{prefix}{part}-{os.getpid()}" for part in parts]

    def close(self):
        for name in self.names:
            if (NAMESPACES / name).exists():
                run("ip", "netns", "delete", name)
