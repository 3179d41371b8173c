"""What `gradsieve plan` foresees of the measured ways: two nodes, the gradients that are averaged, everything handed in at once, no
backward pass to hide behind."""
import json
import subprocess
import tempfile

from .catalog import CODECS, FP16, GLOO, SECURITIES, ours_name

DEFAULT_TEXT = "topk(0.01) | pow2(bits=4) | auto"  # the built-in codec of jobs with one gradient a step
ALL_REDUCES = {"all-reduce, fp32": GLOO.name, "all-reduce, fp16": FP16.name}
TIMEOUT_S = 300
WITHIN = 0.2  # of what was measured


def foreseen(build, parameters, gradients, rate):
    """{way: milliseconds from hand-in to hand-back}, of plain text. gradients: file of the recorded ones. Errors: OSError,
    subprocess.SubprocessError."""
    texts = {text or DEFAULT_TEXT: name for name, text in CODECS.items()}
    codecs = [argument for text in texts for argument in ("--codec", text)]
    import numpy
    with tempfile.NamedTemporaryFile(suffix=".f32") as file:
        numpy.load(gradients, mmap_mode="r")[0].tofile(file)  # of the first rank, step by step
        file.flush()
        command = [build / "cli" / "gradsieve", "plan", "--json", "--params", str(parameters), "--nodes", "2", "--link", f"{rate.name}bit",
                   "--step-ms", "0.001", "--backward-share", "0", "--gradients", file.name, *codecs]
        said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=TIMEOUT_S)
    names = {**ALL_REDUCES, **{text: ours_name(name, SECURITIES[0]) for text, name in texts.items()}}
    return {names[row["name"]]: 1000 * row["exchange_s"] for row in json.loads(said.stdout)["rows"] if row["name"] in names}
