"""What cannot be averaged here, refused by name before training begins. Calls nothing of torch that is not public."""
from __future__ import annotations

import torch

from ..errors import InvalidArgument, Unimplemented

PAGE = "docs/python.md, \"What is refused\""
_SHARDED_MODELS = {"FullyShardedDataParallel": "FSDP", "FSDPModule": "FSDP", "DeepSpeedEngine": "DeepSpeed (ZeRO)"}
_SHARDING_OPTIMIZERS = ("DeepSpeedZeroOptimizer", "DeepSpeedZeroOptimizer_Stage3")
DTYPES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}  # as gradsieve.ElementType numbers them


def refuse_sharding(model: torch.nn.Module, optimizer: object) -> None:
    """Errors: Unimplemented, naming FSDP or ZeRO and the page."""
    for module in model.modules():
        for kind in type(module).__mro__:
            if kind.__name__ in _SHARDED_MODELS:
                raise Unimplemented(f"the model contains a {kind.__name__}: {_SHARDED_MODELS[kind.__name__]} shards "
                                    "gradients, and allowed are whole ones (DistributedDataParallel, or Averager); see "
                                    f"{PAGE}")
    for kind in type(optimizer).__mro__:
        if kind.__name__ in _SHARDING_OPTIMIZERS:
            raise Unimplemented(f"the optimizer is a {kind.__name__}: ZeRO-2 and ZeRO-3 shard gradients, and allowed are "
                                f"whole ones; see {PAGE}")


def refuse_sparse(model: torch.nn.Module) -> None:
    """Errors: Unimplemented, naming the layer."""
    for name, module in model.named_modules():
        if isinstance(module, (torch.nn.Embedding, torch.nn.EmbeddingBag)) and module.sparse:
            raise Unimplemented(f"layer '{name}' makes sparse gradients (sparse=True): allowed are dense ones; make it with "
                                f"sparse=False, see {PAGE}")


def check_parameter(name: str, parameter: torch.Tensor) -> None:
    """Errors: InvalidArgument, naming the parameter and its type or its device."""
    if parameter.dtype not in DTYPES:
        raise InvalidArgument(f"parameter '{name}' is {parameter.dtype}: allowed are float32, float16 and bfloat16; convert "
                              "the model, or freeze it (requires_grad_(False))")
    if parameter.device.type not in ("cpu", "cuda"):
        raise InvalidArgument(f"parameter '{name}' is on {parameter.device}: allowed are cpu and cuda; move the model")
