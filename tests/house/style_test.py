#!/usr/bin/env python3
"""What a reader of the style guide would otherwise have to watch for: sizes of files, names, sleeps in tests, bare TODOs,
and words of places that mean nothing to a stranger."""
import re

from house import SOURCE_SUFFIXES, files, report, require, text_of

LINES_MAX = 400
TEXT_SUFFIXES = SOURCE_SUFFIXES | {".md", ".py", ".sh", ".txt", ".cmake", ".toml", ".service", ".socket", ".json", ".yml", ""}
WITHOUT_LINE_LIMIT = {"LICENSE"}
# Split, so that this file passes its own test.
STRANGE_WORDS = ["/wo" + "rk/", "shared" + "/docs", "shared" + "/papers", "shared" + "/tools", "sub" + "agent", "clau" + "de", "anthro" + "pic"]
SLEEP = re.compile(r"\b(sleep_for|sleep_until|usleep|nanosleep|time\.sleep)\b|(?<![\w.:])sleep\s*\(")
TODO = re.compile(r"\b(TODO|FIXME|XXX)\b(?!\(#\d+\))")
SNAKE_CASE = re.compile(r"[a-z0-9_]+")


def faults_in(path, text):
    faults = []
    lines = text.splitlines()
    suffix = "." + path.rsplit(".", 1)[1] if "." in path.rsplit("/", 1)[-1] else ""
    is_source = suffix in SOURCE_SUFFIXES
    is_code = is_source or suffix == ".py"
    if is_code and len(lines) > LINES_MAX:
        faults.append(f"{path}:{LINES_MAX + 1}: {len(lines)} lines; allowed are {LINES_MAX}: split it by what its parts are for")
    if is_source and not SNAKE_CASE.fullmatch(path.rsplit("/", 1)[-1].split(".")[0]):
        faults.append(f"{path}:1: source files are named in snake_case")
    if suffix in {".hpp", ".h"} and "#pragma once" not in text and "#ifndef" not in text:
        faults.append(f"{path}:1: a header without #pragma once")
    for number, line in enumerate(lines, 1):
        if is_code and path.startswith("tests/") and "style_test" not in path and SLEEP.search(line.split("//")[0]):
            faults.append(f"{path}:{number}: a sleep in a test: wait for the event under a watchdog: {line.strip()}")
        if is_source and "using namespace" in line.split("//")[0] and suffix in {".hpp", ".h"}:
            faults.append(f"{path}:{number}: `using namespace` in a header: {line.strip()}")
        if (suffix != ".md" and "style_test" not in path) and TODO.search(line):
            faults.append(f"{path}:{number}: a TODO without an issue number, TODO(#123): {line.strip()}")
        for word in STRANGE_WORDS:
            if word in line.lower():
                faults.append(f"{path}:{number}: '{word}' means nothing to a reader of this project: {line.strip()}")
    return faults


def main():
    todo, strange = "// TO" + "DO later", "see /wo" + "rk/notes"
    for bad in (("base/a.cpp", "x\n" * 401), ("tests/a.cpp", "std::this_thread::sleep_for(1s);"), ("tests/a.cpp", "sleep(1);"),
                ("tests/a.py", "time.sleep(1)"), ("python/a.py", "x = 1\n" * 401),
                ("base/a.cpp", todo), ("README.md", strange), ("base/Bad.cpp", ""), ("base/a.hpp", "int x;")):
        require(faults_in(*bad), f"it does not refuse {bad[0]} with {bad[1][:40]!r}")
    for good in (("tests/a.cpp", "announce_sleep(true);"), ("tests/a.cpp", "// no sleep_for here"), ("base/a.cpp", todo.replace("DO", "DO(#12)"))):
        require(not faults_in(*good), f"it refuses {good[0]} with {good[1]!r}")
    ours = [path for path in files() if path.suffix in TEXT_SUFFIXES and path.name not in WITHOUT_LINE_LIMIT]
    faults = [fault for path in ours for fault in faults_in(path.as_posix(), text_of(path))]
    names = {}
    for path in ours:
        if path.suffix in {".cpp", ".hpp"} and path.name != "main.cpp":
            names.setdefault(path.name, []).append(path.as_posix())
    public = "client/include/gradsieve/"  # named by what users include, e.g. <gradsieve/status.hpp>
    for name, paths in names.items():
        ordinary = [path for path in paths if not path.startswith(public)]
        if len(ordinary) > 1:
            faults.append(f"{ordinary[1]}:1: the file name is taken by {ordinary[0]}; names are unique in the repository")
    report("style_test", len(ours), faults)


main()
