#!/usr/bin/env python3
"""`./dev` itself: it parses, its help names every command, and it refuses what it does not know. Installs nothing."""
import re
import subprocess

from house import ROOT, report, text_of


def run(*arguments):
    return subprocess.run([str(ROOT / "dev"), *arguments], cwd="/", capture_output=True, text=True, stdin=subprocess.DEVNULL)


def main():
    faults = []
    for script in ("dev", ".ci/run"):
        parsed = subprocess.run(["bash", "-n", str(ROOT / script)], capture_output=True, text=True)
        if parsed.returncode:
            faults.append(f"{script}:1: {parsed.stderr.strip()}")
        if not (ROOT / script).stat().st_mode & 0o111:
            faults.append(f"{script}:1: not executable")
    help_text = run()
    if help_text.returncode:
        faults.append(f"dev:1: without arguments it ends with {help_text.returncode}, not with its help")
    commands = re.findall(r"^cmd_([a-z-]+)\(\)", text_of("dev"), flags=re.M)
    for command in commands:
        if not re.search(rf"^  {command} ", help_text.stdout, flags=re.M):
            faults.append(f"dev:1: its help does not name '{command}'")
    for arguments in (["fly"], ["setup", "--no-such-option"], ["build", "no-such-preset"]):
        refused = run(*arguments)
        if refused.returncode == 0 or arguments[-1] not in refused.stderr:
            faults.append(f"dev:1: `./dev {' '.join(arguments)}` is not refused by name: {refused.stderr.strip()}")
    report("dev_test", len(commands), faults)


main()
