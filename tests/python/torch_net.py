"""The small network of the tests' training processes, its data, and gradients as they should come out. Not a test."""
import hashlib

import torch
import torch.distributed as dist


class Net(torch.nn.Module):
    """Enough layers for several small buckets; `spare` is used on request only."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64), torch.nn.Tanh(),
                                          torch.nn.Linear(64, 3))
        self.spare = torch.nn.Linear(3, 3)
        self.uses_spare = True

    def forward(self, inputs):
        outputs = self.layers(inputs)
        return self.spare(outputs) if self.uses_spare else outputs


def seeded_net():
    torch.manual_seed(5)
    return Net()


def join_processes():
    if not dist.is_initialized():
        torch.set_num_threads(1)
        dist._DEFAULT_FIRST_BUCKET_BYTES = 4096  # else a small model is one bucket; torch's own tests set it too
        dist.init_process_group("gloo")
    return dist.get_rank()


def batch(rank, step, rows=16):
    generator = torch.Generator().manual_seed(1000 * rank + step)
    inputs = torch.randn(rows, 8, generator=generator)
    return inputs, (inputs.sum(1) > 0).long() + (inputs[:, 0] > 1).long()


def loss_of(model, rank, step):
    inputs, labels = batch(rank, step)
    return torch.nn.functional.cross_entropy(model(inputs), labels)


def gradients(model):
    return [parameter.grad.clone() for parameter in model.parameters()]


def hash_of(tensors):
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(bytes(tensor.detach().contiguous().view(-1).view(torch.uint8).numpy()))
    return digest.hexdigest()


def local_gradients(net, rank, step):
    """This rank's own, without any averaging."""
    net.zero_grad(set_to_none=True)
    loss_of(net, rank, step).backward()
    return [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in net.parameters()]


def exact_mean(net, step):
    """The mean over the two ranks as the daemon takes it: fp32, in rank order, times 1/2."""
    return [(zero + one) * 0.5 for zero, one in zip(local_gradients(net, 0, step), local_gradients(net, 1, step))]


def largest_difference(left, right):
    return max(float((a - b).abs().max()) for a, b in zip(left, right))
