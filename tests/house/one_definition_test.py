#!/usr/bin/env python3
"""A type's name is defined once in each namespace: the linker would merge the functions of two classes of one name (what
a container of one instantiates serves the other) and say nothing."""
import re

from house import report, require, sources, text_of

NAMESPACE = re.compile(r"^namespace ([\w:]*) ?\{$")
TYPE = re.compile(r"^(?:struct|class|enum class|enum)(?: alignas\(\w+\))? (\w+)(?: final)?(?: : [^;]*)? \{")
END = re.compile(r"^\}  // namespace")


def definitions(text):
    """(namespace, name, line) of every type at the outermost level of a named namespace."""
    inside = []
    for number, line in enumerate(text.split("\n"), 1):
        if match := NAMESPACE.match(line):
            inside.append(match.group(1))
        elif END.match(line) and inside:
            inside.pop()
        elif (match := TYPE.match(line)) and "" not in inside:
            yield "::".join(inside), match.group(1), number


def faults_in(texts):
    """`texts`: path and text of each file."""
    seen, faults = {}, []
    for path, text in texts:
        for namespace, name, number in definitions(text):
            place = f"{path}:{number}"
            if other := seen.get((namespace, name)):
                faults.append(f"{place}: {namespace}::{name} is defined at {other} too; give one of them another name, or "
                              "put it into an anonymous namespace")
            seen.setdefault((namespace, name), place)
    return faults


def main():
    one = "namespace a::b {\nstruct Plan {\n};\n}  // namespace a::b\n"
    hidden = one.replace("struct", "namespace {\nstruct").replace("};", "};\n}  // namespace")
    require(faults_in([("x.hpp", one), ("y.hpp", one)]), "it does not see a second definition")
    require(not faults_in([("x.hpp", one), ("y.cpp", hidden)]), "it refuses an anonymous namespace")
    ours = [path for path in sources() if path.parts[:3] != ("tests", "emulated_cuda", "include")]  # CUDA's names
    report("one_definition_test", len(ours), faults_in((path, text_of(path)) for path in ours))


main()
