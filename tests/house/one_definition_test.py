#!/usr/bin/env python3
"""A type's name is defined once in each namespace: the linker would merge the functions of two classes of one name (what
a container of one instantiates serves the other) and say nothing."""
import re
import subprocess
import sys

NAMESPACE = re.compile(r"^namespace ([\w:]*) ?\{$")
TYPE = re.compile(r"^(?:struct|class|enum class|enum)(?: alignas\(\w+\))? (\w+)(?: final)?(?: : [^;]*)? \{")
END = re.compile(r"^\}  // namespace")


def definitions(file):
    """(namespace, name, line) of every type at the outermost level of a named namespace."""
    inside = []
    with open(file, encoding="utf-8") as source:
        for number, line in enumerate(source, 1):
            if match := NAMESPACE.match(line):
                inside.append(match.group(1))
            elif END.match(line) and inside:
                inside.pop()
            elif (match := TYPE.match(line)) and "" not in inside:
                yield "::".join(inside), match.group(1), number


def main():
    files = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.hpp", "*.cpp", "*.cuh", "*.cu"], check=True,
                           capture_output=True, text=True).stdout.split()
    seen = {}
    faults = 0
    for file in files:
        if file.startswith("tests/emulated_cuda/include/"):
            continue  # CUDA's names
        for namespace, name, number in definitions(file):
            place = f"{file}:{number}"
            if other := seen.get((namespace, name)):
                faults += 1
                print(f"{place}: {namespace}::{name} is defined at {other} too; give one of them another name, or put it "
                      "into an anonymous namespace")
            seen.setdefault((namespace, name), place)
    if len(seen) < 200:
        sys.exit(f"only {len(seen)} types were found: this test does not see the sources")
    sys.exit(1 if faults else 0)


main()
