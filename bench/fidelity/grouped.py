"""Layers of networks that several groups of samples go through at once, each group with weights of its own, so that one backward
pass gives every group's gradient. The first dimension of all arrays is the group. Plain functions; CPU and CUDA."""
import math

import torch


def linear(values, weight, bias=None):
    """values (groups, ..., inputs), weight (groups, outputs, inputs), bias (groups, outputs)."""
    flat = values.flatten(1, -2)
    result = torch.bmm(flat, weight.transpose(1, 2))
    if bias is not None:
        result = result + bias[:, None]
    return result.unflatten(1, values.shape[1:-1]) if values.dim() > 3 else result


def convolution(images, weight, bias):
    """3 x 3, padded. images (groups, samples, height, width, channels), weight (groups, outputs, 9 channels)."""
    height, width = images.shape[2:4]
    padded = torch.nn.functional.pad(images, (0, 0, 1, 1, 1, 1))
    patches = torch.cat([padded[:, :, y:y + height, x:x + width] for y in range(3) for x in range(3)], dim=-1)
    return linear(patches, weight, bias)


def halved(images):
    """The largest of each 2 x 2 square; an odd last row or column is left out."""
    height, width = images.shape[2] // 2 * 2, images.shape[3] // 2 * 2
    images = images[:, :, :height, :width]
    return images.unflatten(2, (height // 2, 2)).unflatten(4, (width // 2, 2)).amax((3, 5))


def normalized(values, gain, bias):
    """Layer normalization over the last dimension. gain and bias (groups, width)."""
    shape = (len(gain),) + (1,) * (values.dim() - 2) + (gain.shape[-1],)
    centred = values - values.mean(-1, keepdim=True)
    scale = torch.rsqrt(centred.square().mean(-1, keepdim=True) + 1e-5)
    return centred * scale * gain.reshape(shape) + bias.reshape(shape)


def attention(queries, keys, values, heads):
    """Causal. All (groups, samples, length, width)."""
    groups, samples, length, width = queries.shape

    def split(array):
        return array.reshape(groups * samples, length, heads, width // heads).transpose(1, 2)

    scores = split(queries) @ split(keys).transpose(-1, -2) / math.sqrt(width // heads)
    hidden = torch.ones(length, length, dtype=torch.bool, device=queries.device).triu(1)
    shares = torch.softmax(scores.masked_fill(hidden, -1e9), dim=-1)
    return (shares @ split(values)).transpose(1, 2).reshape(groups, samples, length, width)


def one_hot(numbers, classes):
    """float32, one dimension more."""
    return (numbers[..., None] == torch.arange(classes, device=numbers.device)).float()


def losses(scores, classes):
    """Mean cross entropy of each group, in nats. scores (groups, ..., classes), classes (groups, ...)."""
    chosen = scores.gather(-1, classes[..., None]).squeeze(-1)
    return (torch.logsumexp(scores, dim=-1) - chosen).flatten(1).mean(1)
