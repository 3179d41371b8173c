#!/usr/bin/env python3
"""gradsieve-gpu-report with a stand-in for gradsieve-gpu-check: which parts run on one GPU and on two, what the folder
holds afterwards, and that a part which fails or takes too long shows. Needs no GPU and none of the programs."""
import os
import pathlib
import re
import stat
import subprocess
import sys
import tempfile

REPORT = pathlib.Path(sys.argv[1])
CHECK = """#!/bin/sh
case " $* " in
*" --list "*)
    echo "gradsieve 0, CUDA driver 0"
    for device in $DEVICES; do echo "  device $device: stand-in, 1 MiB, 1 multiprocessors, compute 9.0"; done
    exit ;;
*" $HANGS "*) tail -f /dev/null ;;
*" $FAILS "*) echo "FAILED on purpose"; echo "gpu-check: 1 equalities held, 1 failed, 0 skipped"; exit 1 ;;
*" encode-speed "*) head -c 3000000 /dev/zero | tr '\\0' x; echo; echo "topk(0.01) 1.0 ms" ;;
esac
echo "ran with $*"
echo "gpu-check: 2 equalities held, 0 failed, 0 skipped"
"""
TWO_GPU_PARTS = ["gpus-encode", "gpus-decode", "gpus-end-to-end"]
faults = []


def require(condition, what):
    if not condition:
        faults.append(what)


def run(folder, *arguments, devices="0", fails="nothing", hangs="nothing"):
    """With nothing in PATH but the stand-in and the system's tools: no sanitizer, no profiler."""
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    check = programs / "gradsieve-gpu-check"
    check.write_text(CHECK)
    check.chmod(check.stat().st_mode | stat.S_IXUSR)
    environment = {"PATH": f"{programs}:/usr/bin:/bin", "DEVICES": devices, "FAILS": fails, "HANGS": hangs,
                   "TMPDIR": str(folder)}
    results = folder / "results"
    ran = subprocess.run([str(REPORT), *arguments, str(results)], env=environment, capture_output=True, text=True, timeout=100)
    return ran, results


def parts_of(summary):
    return re.findall(r"^(\S+) +\d+ s  exit \d+", summary, flags=re.M)


def whole_and_quick(folder):
    for arguments in ([], ["--quick"]):
        for devices, expected in (("0", []), ("0 1", TWO_GPU_PARTS)):
            ran, results = run(folder, *arguments, devices=devices)
            what = f"{arguments} with devices '{devices}'"
            summary = (results / "summary.txt").read_text()
            parts = parts_of(summary)
            require(ran.returncode == 0, f"{what}: ends with {ran.returncode}: {ran.stderr}")
            require([part for part in parts if part in TWO_GPU_PARTS] == expected, f"{what}: parts {parts}")
            require(("one GPU only" in summary) == (not expected), f"{what}: says whether there is one GPU only")
            for part in ("encode-small", "decode-speed", "end-to-end-speed", "busy-trainer", "end-to-end"):
                require(part in parts, f"{what}: no {part} in {parts}")
            require(("encode-large" in parts) == (not arguments), f"{what}: encode-large belongs to the whole report")
            require("topk(0.01) 1.0 ms" in summary, f"{what}: the summary has no figures")
            files = sorted(path.name for path in results.iterdir())
            require(files == ["all.log", "summary.txt"], f"{what}: the folder holds {files}")
            log = (results / "all.log").read_text()
            require("######## busy-trainer" in log and "--only busy-trainer" in log, f"{what}: all.log has no busy-trainer")
            require("bytes left out" in log and len(log) < 2_000_000, f"{what}: a long log is not cut: {len(log)}")


def failures(folder):
    ran, results = run(folder, "--quick", "--logs", fails="decode-speed")
    log = results / "logs" / "decode-speed.log"
    require(ran.returncode == 1, f"a part that fails: ends with {ran.returncode}")
    require("FAILED on purpose" in (results / "all.log").read_text(), "a part that fails: its words are in all.log")
    require(log.is_file() and "FAILED on purpose" in log.read_text(), "--logs: every part has its file")
    ran, results = run(folder, "--within", "8", hangs="encode-speed")
    summary = (results / "summary.txt").read_text()
    require(ran.returncode == 1 and "ended after" in summary, f"a part that hangs is ended: {summary}")
    require("not run: 8 s were over" in summary, f"--within: later parts are left out: {summary}")


def refusals(folder):
    for arguments in (["--fast"], ["--within", "soon"]):
        ran, _ = run(folder, *arguments)
        require(ran.returncode == 2 and "--quick" in ran.stderr, f"{arguments}: ends with {ran.returncode}: {ran.stderr}")


def main():
    if os.name != "posix" or not REPORT.is_file():
        sys.exit(f"no report script at {REPORT}")
    for test in (whole_and_quick, failures, refusals):
        with tempfile.TemporaryDirectory() as folder:
            test(pathlib.Path(folder))
    for fault in faults:
        print(fault)
    print(f"gpu_report_test: {len(faults)} faults")
    sys.exit(1 if faults else 0)


main()
