"""The codecs that are compared, as families: what a family's members have in common is the idea, what tells them apart is how much
they send. Shares are chosen so that wire ratios come out a little above 100 and 1,000 in the full size. Plain values."""
from __future__ import annotations

from dataclasses import dataclass, replace

VALUES = "pow2(bits=4) | auto | entropy"
DENSE = "all | f32"
# Of a thousandth of the bytes, frames and small tensors take a part that depends on how many tensors there are.
SHARES_1000 = {"images": 0.00085, "text": 0.00065, "words": 0.00095}
SHARE_100 = 0.0130
ONE = (1.0,)


@dataclass(frozen=True)
class Candidate:
    """A codec to try. `options` are those of Run."""

    family: str
    codec: str
    options: tuple[tuple[str, object], ...] = ()
    rates: tuple[float, ...] = (1.0, 0.5)  # over that of the uncompressed run


def _selections(task: str) -> list[Candidate]:
    """What sends a fixed share: of each tensor, or of all together."""
    found = []
    for share in (SHARE_100, SHARES_1000[task]):
        k, plain, coarse = f"{share:.5g}", f"{share * 0.87:.5g}", f"{share * 1.18:.5g}"
        warm, behind = f"{min(1.0, share * 15):.5g}", f"{share * 0.74:.5g}"  # the ramp's own bytes take a quarter
        found += [
            Candidate("top-k, entropy", f"topk({k}) | {VALUES}"),
            Candidate("top-k of the model", f"topk({k}, scope=model) | {VALUES}"),
            Candidate("top-k of the model", f"topk({k}, scope=model) | {VALUES}", (("rescale", True),)),
            Candidate("DGC", f"momentum(0.9) | topk({k}) | {VALUES}"),
            Candidate("DGC of the model", f"momentum(0.9) | topk({k}, scope=model) | {VALUES}"),
            Candidate("DGC with warm-up", f"momentum(0.9) | warmup(40, {warm}) | topk({behind}) | {VALUES}"),
            Candidate("top-k with warm-up", f"warmup(40, {warm}) | topk({behind}, scope=model) | {VALUES}"),
            Candidate("EF21", f"delta | topk({k}) | {VALUES}", rates=ONE),
        ]
        if share == SHARE_100:
            found.append(Candidate("top-k", f"topk({plain}) | pow2(bits=4) | auto"))
            found.append(Candidate("top-k, signs", f"topk({coarse}) | sign"))
            found.append(Candidate("Rand-k", "randk(0.037) | dither(levels=7)", rates=ONE))
    return found


def _by_variance(task: str) -> list[Candidate]:
    """What the variance decides, alone or among the largest."""
    found = [Candidate("variance, P2", f"variance(alpha={alpha:g}) | {VALUES}") for alpha in (1, 2, 4, 8, 16, 32)]
    for share in (SHARE_100, SHARES_1000[task]):
        found += [Candidate("top-k with a gate", f"topk({share * more:.5g}, gate={gate:g}, scope=model) | {VALUES}")
                  for more, gate in ((1, 0.25), (2, 1), (5, 4))]
        found.append(Candidate("top-k with a gate, by tensor", f"topk({share:.5g}, gate=0.25) | {VALUES}"))
    found.append(Candidate("top-k with a gate, by tensor", f"topk({SHARE_100 * 2:.5g}, gate=1) | {VALUES}"))
    one = (("ranks", 1), ("micro_batches", 1))
    found += [Candidate("variance, P3", f"variance(alpha={alpha:g}) | {VALUES}", one, ONE) for alpha in (1, 2)]
    found += [Candidate("variance, P1", f"variance(alpha={alpha:g}) | {VALUES}", (*one, ("source", "second moments")), ONE) for alpha in (2, 8)]
    return found


def _with_local_momentum(task: str) -> list[Candidate]:
    """Momentum before the codec, by the training loop. Noise of the sums is 1 / (1 - 0.9)^2 times that of gradients, which v knows
    nothing of: alpha and gate are that much larger."""
    local = (("local_momentum", True),)
    found = [Candidate("variance, local momentum", f"variance(alpha={alpha:g}) | {VALUES}", local) for alpha in (100, 400, 1600)]
    for share in (SHARE_100, SHARES_1000[task]):
        found.append(Candidate("top-k, local momentum", f"topk({share:.5g}, scope=model) | {VALUES}", local))
        found += [Candidate("gate, local momentum", f"topk({share * more:.5g}, gate={gate:g}, scope=model) | {VALUES}", local)
                  for more, gate in ((1, 25), (2, 100))]
    return found


HYBRID_TAUS = {"images": (0.003, 0.01, 0.03), "text": (0.003, 0.01, 0.03), "words": (0.0003, 0.001, 0.003)}


def candidates(task: str) -> list[Candidate]:
    """All of a task's, without the uncompressed one. The transformer wants smaller rates behind sparse codecs."""
    found = _candidates(task)
    return [replace(candidate, rates=(*candidate.rates, 0.25)) if task == "text" and candidate.rates == (1.0, 0.5) else candidate for candidate in found]


def _candidates(task: str) -> list[Candidate]:
    return [
        *_selections(task), *_by_variance(task), *_with_local_momentum(task),
        *(Candidate("hybrid", f"variance_hybrid({tau:g}, alpha=2)", rates=ONE) for tau in HYBRID_TAUS[task]),
        Candidate("PowerSGD", "lowrank(1)"),
        Candidate("PowerSGD", "lowrank(1, columns=square)", rates=ONE),
        Candidate("PowerSGD", "momentum(0.9) | lowrank(1)", rates=ONE),
        Candidate("dithering", "all | dither(levels=7)", rates=ONE),
        Candidate("dithering", "all | dither(levels=7) | entropy", rates=ONE),
        Candidate("sign", "all | sign", rates=(0.5, 0.2, 0.1)),
        Candidate("sketch", "sketch(0.0006)", rates=ONE),
        Candidate("sketch", "sketch(0.00005)", rates=ONE),
    ]


def adam_candidates(task: str) -> list[Candidate]:
    """Momentum in front is left out: it stands in for the optimizer's, which Adam has of its own."""
    wanted = ("top-k, entropy", "top-k of the model", "top-k with a gate", "variance, P2", "PowerSGD", "dithering", "sign", "top-k with warm-up")
    return [candidate for candidate in candidates(task)
            if candidate.family in wanted and "momentum(" not in candidate.codec and not candidate.options]


def quick_candidates() -> list[Candidate]:
    """A few, sized for small networks."""
    return [
        Candidate("top-k", "topk(0.013) | pow2(bits=4) | auto"),
        Candidate("top-k of the model", f"topk(0.013, scope=model) | {VALUES}"),
        Candidate("DGC", f"momentum(0.9) | topk(0.013) | {VALUES}"),
        Candidate("top-k with a gate", f"topk(0.03, gate=1, scope=model) | {VALUES}"),
        Candidate("variance, P2", f"variance(alpha=3) | {VALUES}"),
        Candidate("PowerSGD", "lowrank(1)"),
        Candidate("dithering", "all | dither(levels=7)"),
        Candidate("sign", "all | sign", rates=(0.2,)),
    ]
