#!/usr/bin/env python3
"""The same selections in plain PyTorch, for the table in docs/gpu.md: what a few lines of tensor operations reach.

python3 bench/torch_selection.py [--elements N] [--repetitions R]

Times, on the first CUDA device, fp32: error feedback + torch.topk (1 % kept), and the variance rule (residual and
variance updated, elements with r^2 > 2.25 v selected, r and v cleared where selected; about 1 % selected), each in
several forms: out of place and in place, by nonzero and by a boolean mask, eager and through torch.compile. Values are
left as fp32 and indices as int64, neither coded nor copied anywhere: less than the encoder does. Prints the median of R
repetitions in ms, with the tenth and the ninetieth percentile, and G elements/s.
"""
import argparse

import torch

ALPHA2 = 2.25
ZETA = 0.999


def variance_mask(g, r, v):
    r = r + g
    v = v + g * g
    sent = r * r > ALPHA2 * v
    values = r[sent]
    indices = sent.nonzero()
    return indices, values, torch.where(sent, 0.0, r), torch.where(sent, 0.0, ZETA * v)


def variance_index(g, r, v):
    r = r + g
    v = torch.addcmul(v, g, g)
    indices = (r * r > ALPHA2 * v).nonzero().squeeze(1)
    values = r[indices]
    r[indices] = 0.0
    v[indices] = 0.0
    return indices, values, r, v.mul_(ZETA)


def variance_in_place(g, r, v):
    r.add_(g)
    v.addcmul_(g, g)
    indices = (r * r > ALPHA2 * v).nonzero().squeeze(1)
    values = r[indices]
    r.index_fill_(0, indices, 0.0)
    v.index_fill_(0, indices, 0.0)
    v.mul_(ZETA)
    return indices, values, r, v


def topk_feedback(g, r, _):
    r = r + g
    magnitudes = r.abs()
    _, indices = torch.topk(magnitudes, r.numel() // 100, sorted=False)
    values = r[indices]
    r[indices] = 0.0
    return indices, values, r, None


@torch.compile(dynamic=False)
def fused_part(g, r, v):
    r = r + g
    v = v + g * g
    sent = r * r > ALPHA2 * v
    return r, torch.where(sent, 0.0, r), torch.where(sent, 0.0, ZETA * v), sent


def variance_compiled(g, r, v):
    whole, r_out, v_out, sent = fused_part(g, r, v)
    indices = sent.nonzero().squeeze(1)
    return indices, whole[indices], r_out, v_out


def times_of(form, g, state, repetitions):
    times = []
    selected = 0
    for repetition in range(repetitions + 3):
        r, v = (array.clone() for array in state)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        begin.record()
        indices = form(g, r, v)[0]
        end.record()
        torch.cuda.synchronize()
        selected = indices.shape[0]
        if repetition >= 3:
            times.append(begin.elapsed_time(end))
    times.sort()
    return [times[(len(times) - 1) * percent // 100] for percent in (50, 10, 90)], selected


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--elements", type=int, default=134_217_728)
    parser.add_argument("--repetitions", type=int, default=20)
    options = parser.parse_args()
    n = options.elements
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name(0)}, {n} elements")
    generator = torch.Generator(device="cuda").manual_seed(1)
    g = torch.randn(n, device="cuda", generator=generator) * 0.1
    r = torch.randn(n, device="cuda", generator=generator)
    v = torch.full((n,), 1.01 * 6.635 / ALPHA2, device="cuda")  # 1 % of normal numbers have squares above 6.635
    for name, form in [("variance, mask", variance_mask), ("variance, nonzero", variance_index),
                       ("variance, in place", variance_in_place), ("variance, torch.compile", variance_compiled),
                       ("error feedback + topk 1 %", topk_feedback)]:
        (median, low, high), selected = times_of(form, g, (r, v), options.repetitions)
        print(f"{name:<28} {median:8.3f} ms ({low:.3f} to {high:.3f}), {n / median / 1e6:6.1f} G/s, "
              f"{100 * selected / n:.2f} % selected")


if __name__ == "__main__":
    main()
