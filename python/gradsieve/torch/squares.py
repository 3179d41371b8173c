"""Sums over samples of squared per-sample gradients of one layer's parameters, out of the layer's input and the gradient of
its output. Plain functions without state; float32; any thread. On a GPU they enqueue on the current stream and wait for nothing."""
from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

# Of per-sample gradients at a time: 8 MB, what a cache may hold; on a GPU 256 MB, which keep it busy.
PIECE_ELEMENTS, CARD_PIECE_ELEMENTS = 1 << 21, 1 << 26
SquaresFunction = Callable[[torch.nn.Module, str, torch.Tensor, torch.Tensor], tuple[torch.Tensor, int]]


def _pieces(samples: int, elements_each: int, device: torch.device) -> Iterator[slice]:
    """Ranges of samples whose per-sample gradients are no more than a piece's elements, or one sample."""
    step = max(1, (PIECE_ELEMENTS if device.type == "cpu" else CARD_PIECE_ELEMENTS) // max(1, elements_each))
    return (slice(begin, min(begin + step, samples)) for begin in range(0, samples, step))


def _product_squares(left: torch.Tensor, right: torch.Tensor, elements_each: int) -> torch.Tensor:
    """sum over b of (left[b] @ right[b])^2; left (B, ..., m, p), right (B, ..., p, n)."""
    total = torch.zeros(*left.shape[1:-1], right.shape[-1], device=left.device)
    for piece in _pieces(len(left), elements_each, left.device):
        total += torch.matmul(left[piece], right[piece]).square_().sum(0)
    return total


def linear_squares(module: torch.nn.Module, own_name: str, values: torch.Tensor, gradient: torch.Tensor) -> tuple[torch.Tensor, int]:
    """values (B, ..., inputs) or (inputs), gradient likewise with outputs. On vectors sum_b (s_b a_b^T)^2 =
    (s^2)^T (a^2); where a sample has several positions, its positions are summed up before squaring."""
    values, gradient = values.float(), gradient.float()
    if values.dim() == 1:
        values, gradient = values[None], gradient[None]
    samples = len(values)
    if values.dim() == 2:
        squared = gradient.square()
        return (squared.sum(0) if own_name == "bias" else squared.t() @ values.square()), samples
    values, gradient = values.flatten(1, -2), gradient.flatten(1, -2)
    if own_name == "bias":
        return gradient.sum(1).square_().sum(0), samples
    return _product_squares(gradient.transpose(1, 2), values, gradient.shape[-1] * values.shape[-1]), samples


def conv2d_squares(module: torch.nn.Module, own_name: str, values: torch.Tensor, gradient: torch.Tensor) -> tuple[torch.Tensor, int]:
    """values (B, C, H, W) or (C, H, W), gradient likewise. A sample's weight gradient is its output gradient times its
    unfolded input, summed over positions."""
    assert isinstance(module, torch.nn.Conv2d)
    values, gradient = values.float(), gradient.float()
    if values.dim() == 3:
        values, gradient = values[None], gradient[None]
    samples, groups = len(values), module.groups
    if own_name == "bias":
        return gradient.sum((2, 3)).square_().sum(0), samples
    total = torch.zeros_like(module.weight, dtype=torch.float32, memory_format=torch.contiguous_format)
    padding: int | tuple[int, ...] = 0 if isinstance(module.padding, str) else module.padding  # "valid" alone; see reason_against
    patch = values.shape[1] * module.kernel_size[0] * module.kernel_size[1]
    positions = gradient.shape[2] * gradient.shape[3]
    for piece in _pieces(samples, max(patch * positions, total.numel()), values.device):
        columns = torch.nn.functional.unfold(values[piece], module.kernel_size, module.dilation, padding, module.stride)
        columns = columns.unflatten(1, (groups, patch // groups)).transpose(2, 3)
        grads = gradient[piece].flatten(2).unflatten(1, (groups, module.out_channels // groups))
        total += torch.matmul(grads, columns).square_().sum(0).reshape(total.shape)
    return total, samples


def embedding_squares(module: torch.nn.Module, own_name: str, values: torch.Tensor, gradient: torch.Tensor) -> tuple[torch.Tensor, int]:
    """values: indices (B, ...), gradient (B, ..., width). A row's gradients are summed up over a sample before squaring."""
    assert isinstance(module, torch.nn.Embedding)
    samples = len(values) if values.dim() else 1
    rows = module.num_embeddings
    indices = values.reshape(samples, -1)
    gradient = gradient.float().reshape(-1, module.embedding_dim)
    if module.padding_idx is not None:  # takes no gradient
        gradient = gradient * (indices.reshape(-1, 1) != module.padding_idx)
    keys, order = (torch.arange(samples, device=indices.device)[:, None] * rows + indices).reshape(-1).sort()
    # Which of the sorted keys' runs each belongs to: there are as many as keys at most, and how many nobody has to know.
    run = torch.zeros_like(keys)
    torch.cumsum(keys[1:] != keys[:-1], 0, out=run[1:])
    summed = torch.zeros(len(keys), module.embedding_dim, device=gradient.device).index_add_(0, run, gradient[order])
    row_of_run = torch.zeros_like(keys).scatter_(0, run, keys % rows)
    total = torch.zeros(rows, module.embedding_dim, device=gradient.device)
    return total.index_add_(0, row_of_run, summed.square_()), samples


KINDS: dict[type, SquaresFunction] = {
    torch.nn.Linear: linear_squares, torch.nn.Conv2d: conv2d_squares, torch.nn.Embedding: embedding_squares}


def reason_against(module: torch.nn.Module) -> str:
    """Why a layer is not covered; empty if it is. A derived class may compute something else."""
    if type(module) not in KINDS:
        return f"{type(module).__name__} is not covered: Linear, Conv2d and Embedding are"
    if isinstance(module, torch.nn.Conv2d) and (module.padding_mode != "zeros" or module.padding == "same"):
        return f"Conv2d with padding {module.padding!r} of mode '{module.padding_mode}' is not covered"
    if isinstance(module, torch.nn.Embedding) and (module.max_norm is not None or module.scale_grad_by_freq or module.sparse):
        return "Embedding with max_norm, scale_grad_by_freq or sparse is not covered"
    return ""
