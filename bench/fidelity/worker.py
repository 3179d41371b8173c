"""One run after the other, as lines of JSON say: {"run": ..., "seconds": ...} in, {"outcome": ...} or {"fault": ...} out."""
import json
import os
import platform
import sys
from pathlib import Path


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def main() -> None:
    library_path, data, device = sys.argv[1:4]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is not an answer
    import torch

    from . import library, training
    from .plan import Run

    torch.set_num_threads(1)
    torch.backends.cuda.matmul.allow_tf32 = True
    loaded = library.load(Path(library_path))
    name = torch.cuda.get_device_name() if device.startswith("cuda") else processor()
    machine = f"{name}, torch {torch.__version__}"
    print(json.dumps({"ready": machine}), file=answers, flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        try:
            outcome = training.train(Run(**order["run"]), loaded, Path(data), device, order["seconds"])
            answer = {"outcome": outcome}
        except Exception as error:  # a run's fault is its own: it is told, and the next one begins
            answer = {"fault": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
