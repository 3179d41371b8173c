#!/usr/bin/env python3
"""Every stage of the table runs in every suite: conformance and properties (the pipelines of tests/codec, which the checks of GPUs run as
well), theory, golden files, fuzz targets, convergence, faults, benchmarks. A suite's list names stages in codecs' texts; a stage that
stands in no text of it is a fault."""
import re

from house import files, report, require, text_of

ROW = re.compile(r'StageRow\{\s*"(\w+)",\s*"(front|selector|quantizer|whole codec|index coder|entropy coder)"')
# What changes no byte of a payload's form needs no golden payload of its own: a list is one whoever chose its elements.
FORMS = ("quantizer", "whole codec", "index coder", "entropy coder")
KEYED = ("randk", "bernoulli", "biased_random")
PHASES = r"tests/codec/(low_rank|sketch|phase|similarity|reuse|model_scope|encoder_pipelines)\w*\.[ch]pp"
SUITES = {
    "properties and equality with the reference": (PHASES, lambda name, role: True),
    "equality of GPUs and CPUs": (PHASES + r"|tests/gpu/\w+\.[ch]pp", lambda name, role: True),
    "theory": (r"tests/codec/theory/\w+\.cpp|tests/codec/\w+_test\.cpp", lambda name, role: True),
    "golden files": (r"tests/codec/golden/\w+\.txt", lambda name, role: role in FORMS or name in KEYED),
    "fuzz targets": (r"tests/fuzz/\w+\.cpp|tests/codec/payload_cases\.cpp", lambda name, role: role in FORMS or name in KEYED),
    "convergence": (r"tests/convergence/convergence_rows\.cpp", lambda name, role: True),
    "faults": (r"tests/survive/rounds\.cpp", lambda name, role: True),
    "benchmarks": (r"bench/codec_bench\.cpp|tests/gpu/\w+_speed\.cpp", lambda name, role: True),
}


def faults_in(rows, texts):
    """`rows`: name and role of each stage; `texts`: of each suite, all of its lists."""
    faults = []
    for suite, (where, is_due) in SUITES.items():
        for name, role in rows:
            if is_due(name, role) and not re.search(rf"\b{name}\b", texts[suite]):
                faults.append(f"stage {name} runs in no codec of the suite '{suite}': name it in {where}")
    return faults


def main():
    require(faults_in([("nothing", "front")], {suite: "topk(0.1) | f32" for suite in SUITES}), "it misses a stage that runs nowhere")
    require(not faults_in([("topk", "selector")], {suite: "topk(0.1) | f32" for suite in SUITES}), "it refuses one that runs everywhere")
    listed = files()
    stages = "\n".join(text_of(path) for path in listed if re.fullmatch(r"codec/stages/\w+\.cpp", path.as_posix()))
    rows = ROW.findall(stages)
    require(len(rows) == stages.count("StageRow{") and len(rows) > 30, f"it finds {len(rows)} rows: the pattern misses some")
    texts = {suite: "\n".join(text_of(path) for path in listed if re.fullmatch(where, path.as_posix())) for suite, (where, _) in SUITES.items()}
    report("stages_test", len(rows) * len(SUITES), faults_in(rows, texts))


main()
