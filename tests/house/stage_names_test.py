#!/usr/bin/env python3
"""A stage is one file pair and one row: nobody but its own files, and the list, names it. Whoever else has to know something of a
quantizer or a selector asks for a fact, a kind of selection or a coder, so that a new one changes nothing there. What names one all
the same stands here with its reason, and how many places that are."""
import re

from house import files, report, require, text_of

# QuantizerKind::kMinMax, SelectorKind::kTopK, and stages::MinMax by way of the list.
NAMED = re.compile(r"\b(?:QuantizerKind|SelectorKind)::k\w+|\bstages::(?!Entropy\b)[A-Z]\w*")
ROOMS = ("codec", "daemon", "cli", "exchange", "client", "shm", "transport", "base")
# One's own pair, and the lists.
OWN = re.compile(r"codec/stages/\w+\.[ch]pp")
LISTS = {"codec/stages/quantizer_list.hpp", "codec/stages/stage_list.cpp"}
# A quantizer's part on the GPU: specializations, which kernels find at compile time.
DEVICE = {
    "codec/cuda/dense_vectors.cuh": "f32, f16, bf16, natural and votes in the dense pass",
    "codec/cuda/dense_sign.cuh": "sign and two_mean in the dense pass",
    "codec/cuda/dense_minmax.cuh": "minmax in the dense pass",
    "codec/cuda/dense_integer.cuh": "integer in the dense pass",
    "codec/cuda/encode_integer.cu": "integer once a chunk's codes are known",
    "codec/cuda/dither_levels.cuh": "an element of a list by what rounds at random",
    "codec/cuda/tile_send.cuh": "an element of a list by what does not",
    "codec/cuda/list_values.cuh": "a list's element read back",
    "codec/cuda/unit_dense.cuh": "dense payloads added up",
}
# Path: how many names, and why.
ELSEWHERE = {
    "codec/pipeline.hpp": (2, "defaults of Selector and Quantizer, which are `all | f32`"),
    "codec/payload.hpp": (1, "the default of a header"),
    "codec/cuda/encode_rounds.cpp": (1, "means are written as `all | f32` writes them, whatever the codec"),
}
# Files of codec/stages may name themselves, those of one form on the wire, and what their texts stand for.
RELATED = {
    "accumulate": {"kVarianceHybrid", "kThreshold"},  # what a waiting step is encoded by: keeps the same arrays, lists nothing
    "sign": {"TwoMean", "Vote"},
    "ternary": {"Dither"},
    "rounding": {"ExponentialDither"},
}


def words_of(name):
    """minmax and MinMax, top_k and TopK are one name."""
    return name.replace("_", "").lower()


def faults_in(path, text):
    """Names in a file that has no right to them."""
    names = [match.group(0) for line in text.splitlines() for match in NAMED.finditer(line.split("//")[0])]
    if path in LISTS or path in DEVICE:
        return []
    if OWN.fullmatch(path):
        stem = path.rsplit("/", 1)[1].split(".")[0]
        related = {words_of(word.removeprefix("k")) for word in RELATED.get(stem, ())} | {words_of(stem)}
        strange = [name for name in names if words_of(name.rsplit("::", 1)[1].removeprefix("k") if "Kind" in name
                                                      else name.rsplit("::", 1)[1]) not in related]
        return [f"{path}: it names {name}, another stage: ask for a fact (quantizer_facts.hpp)" for name in strange]
    allowed = ELSEWHERE.get(path, (0, ""))[0]
    if len(names) > allowed:
        return [f"{path}: it names {', '.join(names)}; allowed are {allowed}: ask for a fact, a kind of selection or a coder"]
    return []


def main():
    require(faults_in("codec/encoder.cpp", "if (kind == QuantizerKind::kDither) return;"), "it misses an enumerator")
    require(faults_in("codec/encoder.cpp", "x = stages::Dither::kFacts.kind;"), "it misses a stage's type")
    require(faults_in("codec/stages/minmax.cpp", "case QuantizerKind::kDither: break;"), "it lets one stage name another")
    require(not faults_in("codec/stages/minmax.hpp", ".kind = QuantizerKind::kMinMax, // as QuantizerKind::kDither"), "it refuses a stage's own name")
    require(not faults_in("codec/payload.hpp", "QuantizerKind kind = QuantizerKind::kF32;"), "it refuses what is allowed")
    require(faults_in("codec/payload.hpp", "QuantizerKind::kF32 QuantizerKind::kF16"), "it does not count what is allowed")
    ours = [path.as_posix() for path in files() if path.suffix in {".hpp", ".cpp", ".cu", ".cuh", ".inl"} and path.parts[0] in ROOMS]
    faults = [fault for path in ours for fault in faults_in(path, text_of(path))]
    for path in sorted(set(DEVICE) | set(ELSEWHERE)):
        if path not in ours or not NAMED.search(text_of(path)):
            faults.append(f"stage_names_test.py: {path} names no stage any more: take it off the list")
    report("stage_names_test", len(ours), faults)


main()
