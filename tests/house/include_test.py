#!/usr/bin/env python3
"""Reads every #include against the may-include table (docs/architecture.md, "Layers"), and its place in the file."""
import re

from house import ROOMS, ROOT, code_lines, report, require, sources, text_of

ALL = set(ROOMS)
# A folder may include its own headers, and those of the folders named here.
MAY_INCLUDE = {
    "base": set(),
    "codec": {"base"},
    "shm": {"base"},
    "transport": {"base"},
    "exchange": {"base"},
    "client": {"base", "shm"},
    "daemon": ALL - {"cli", "examples", "bench", "tests"},
    "cli": ALL - {"bench", "tests"},
    "examples": ALL - {"bench", "tests"},
    "bench": ALL,
    "tests": ALL,
}
# Libraries that would drag their dependencies, exceptions or compile time along: only there, and in tests and benchmarks.
LIBRARIES = {
    r"zmq(\.hpp|\.h|_addon\.hpp)": {"transport", "cli"},  # cli: `doctor` and `--version` name the library's version
    r"boost/interprocess/.*": {"shm"},
    r"boost/.*": {"shm"},
    r"toml\+\+/.*": {"daemon", "cli"},
    r"spdlog/.*": {"daemon", "cli"},
    r"systemd/.*": {"daemon", "cli"},
    r"nlohmann/.*": {"daemon", "cli"},
    r"CLI/.*": {"daemon", "cli", "examples"},
    r"Eigen/.*": {"examples", "cli"},
    r"(gtest|gmock|rapidcheck)(/.*|\.h)": set(),
    r"benchmark/.*": set(),
    r"cuda.*": {"codec", "examples"},  # the client reaches the driver through dlopen
    r"fmt/.*": ALL - {"base"},
    r"xxhash\.h": ALL,
}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def fault_of(room, quote, target):
    """What is wrong with `#include target` in a file of `room`; empty if nothing is."""
    first = target.split("/")[0]
    if ".." in target.split("/"):
        return "a path with '..'"
    if first == "gradsieve":  # the public headers
        return "" if room == "client" or "client" in MAY_INCLUDE[room] else f"{room} may not include client"
    if first in ALL and "/" in target:
        return "" if first == room or first in MAY_INCLUDE[room] else f"{room} may not include {first}"
    for pattern, rooms in LIBRARIES.items():
        if re.fullmatch(pattern, target):
            return "" if room in rooms | {"tests", "bench"} else f"{room} may not include this library"
    if quote == '"' and "/" in target:
        return f"unknown folder '{first}'"
    return ""


def faults_in(path, text):
    room = path.split("/")[0]
    faults = []
    if room not in MAY_INCLUDE:
        return [f"{path}:1: folder '{room}' is not in the may-include table"]
    for number, line in code_lines(text):
        match = INCLUDE.match(line)
        if match and (fault := fault_of(room, *match.groups())):
            faults.append(f"{path}:{number}: {fault}: {line.strip()}")
    return faults


def first_include(text):
    """The first header that a source includes; empty if it includes none."""
    return next((match[2] for _, line in code_lines(text) if (match := INCLUDE.match(line))), "")


def order_fault(path, text, headers):
    """A source begins with the header of its name: so it shows that this header leans on no other (see header_test)."""
    own = re.sub(r"cpp$", "hpp", path)
    if not path.endswith(".cpp") or own not in headers:
        return []
    first = first_include(text)
    return [] if first and own.endswith(first) else [f"{path}:1: its own header {own} is not its first include, but '{first}'"]


def main():
    for bad in ('codec/a.cpp|#include "shm/segment.hpp"', 'client/a.cpp|#include <zmq.hpp>', 'base/a.hpp|# include <fmt/format.h>',
                'shm/a.cpp|#include "gradsieve/gradsieve.hpp"', 'exchange/a.cpp|#include "../codec/decoder.hpp"'):
        require(faults_in(*bad.split("|")), f"it does not refuse {bad}")
    for good in ('daemon/a.cpp|#include "shm/segment.hpp"', 'codec/a.cpp|#include <span>', 'codec/a.cpp|// #include "shm/x.hpp"'):
        require(not faults_in(*good.split("|")), f"it refuses {good}")
    require(order_fault("a/b.cpp", '#include "a/c.hpp"\n#include "a/b.hpp"\n', {"a/b.hpp"}), "it does not refuse another header first")
    require(not order_fault("a/b.cpp", '// b\n#include "a/b.hpp"\n', {"a/b.hpp"}), "it refuses a source's own header first")
    ours = sources()
    names = {path.as_posix() for path in ours}
    faults = [fault for path in ours for text in [text_of(path)]
              for fault in faults_in(path.as_posix(), text) + order_fault(path.as_posix(), text, names)]
    report("include_test", len(ours), faults)


main()
