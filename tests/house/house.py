"""What the house tests share: the list of our files, and one way to report. Standard library only."""
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ["base", "codec", "shm", "transport", "exchange", "client", "daemon", "cli", "examples", "bench", "tests"]
SOURCE_SUFFIXES = {".cpp", ".hpp", ".c", ".h", ".cu", ".cuh"}
NOT_OURS = {".git", "build", ".cache"}


def files():
    """Every file that git tracks or would track, as paths relative to the root; without git, every file outside build/."""
    try:
        listed = subprocess.run(["git", "-c", f"safe.directory={ROOT}", "ls-files", "-co", "--exclude-standard", "-z"],
                                cwd=ROOT, capture_output=True, check=True).stdout.decode()
        names = [name for name in listed.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        names = []
    if not names:
        for folder, folders, leaves in os.walk(ROOT):
            folders[:] = [name for name in folders if name not in NOT_OURS]
            names += [str((Path(folder) / leaf).relative_to(ROOT)) for leaf in leaves]
    return sorted(Path(name) for name in set(names) if (ROOT / name).is_file())


def sources():
    return [path for path in files() if path.suffix in SOURCE_SUFFIXES]


def text_of(path):
    return (ROOT / path).read_text(encoding="utf-8", errors="replace")


def code_lines(text):
    """(line number, line without comments) of C++ text. Strings keep their content; good enough for searching words."""
    without_blocks = re.sub(r"/\*.*?\*/", lambda match: "\n" * match.group().count("\n"), text, flags=re.S)
    return [(number, re.sub(r"//.*", "", line)) for number, line in enumerate(without_blocks.split("\n"), 1)]


def report(rule, checked, faults):
    """Ends the test. `checked` counts what was looked at: a rule that looked at nothing has failed."""
    for fault in faults:
        print(fault)
    if not checked:
        print(f"{rule}: nothing to check was found under {ROOT}")
    print(f"{rule}: {checked} checked, {len(faults)} faults")
    sys.exit(1 if faults or not checked else 0)


def require(condition, what):
    """The rule must find the fault in a known-bad sample; else it is the rule that is broken."""
    if not condition:
        print(f"this test is broken: {what}")
        sys.exit(1)
