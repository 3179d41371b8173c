"""What a reader needs to judge figures by."""
import os
import platform
import subprocess
from pathlib import Path

from .processes import SOURCE


def first_match(path, prefix):
    """The value of the first `prefix: value` line of a file in /proc."""
    return next((line.partition(":")[2].strip() for line in Path(path).read_text().splitlines() if line.startswith(prefix)), "unknown")


def available_bytes():
    """Memory that can be had without swapping, as the kernel estimates it."""
    return 1024 * int(first_match("/proc/meminfo", "MemAvailable:").split()[0])


def machine():
    commit = subprocess.run(["git", "-C", SOURCE, "-c", f"safe.directory={SOURCE}", "log", "-1", "--format=%h of %cs"], capture_output=True,
                            text=True).stdout.strip()
    return {"cpu": first_match("/proc/cpuinfo", "model name"), "cores": os.cpu_count(), "kernel": platform.release(),
            "commit": commit or "unknown", "load": os.getloadavg()[0]}
