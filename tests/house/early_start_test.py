#!/usr/bin/env python3
"""Every kernel of the encoder waits for the kernels before it (early_start.cuh): all of them are launched to begin early,
and one that does not wait reads what is not there yet, on hardware only."""
import re

from house import report, require, sources, text_of

KERNEL = re.compile(r"__global__ void(?:\s+__launch_bounds__\((?:[^()]|\([^()]*\))*\))?\s+(\w+)\(([^)]*)\) \{\n(.*?)\n\}", re.S)


def faults_in(texts):
    """`texts`: path and text of each file."""
    faults = []
    for path, text in texts:
        for match in KERNEL.finditer(text):
            name, parameters, body = match.groups()
            if re.search(r"\b(EncodeRound|ByteCopy)\b", parameters) and "begin_kernel();" not in body:
                line = text.count("\n", 0, match.start()) + 1
                faults.append(f"{path}:{line}: kernel {name} is launched to begin early and does not wait: call begin_kernel() first")
    return faults


def main():
    waiting = "__global__ void __launch_bounds__(f(1), (kB<2>)) run(const EncodeRound round) {\n    begin_kernel();\n}\n"
    require(not faults_in([("a.cu", waiting)]), "it refuses a kernel that waits")
    require(faults_in([("a.cu", waiting.replace("begin_kernel();", "int x;"))]), "it does not see one that does not wait")
    require(not faults_in([("a.cu", waiting.replace("EncodeRound", "Other").replace("begin_kernel();", ""))]),
            "it refuses a kernel that begins as usual")
    texts = [(path, text_of(path)) for path in sources() if path.parts[:2] == ("codec", "cuda")]
    kernels = sum(len(KERNEL.findall(text)) for _, text in texts)
    require(kernels >= 18, f"it finds {kernels} kernels: the pattern misses some")
    report("early_start_test", kernels, faults_in(texts))


main()
