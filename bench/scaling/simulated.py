"""Calls of gradsieve-simulate, and what a codec costs on this machine, as `gradsieve codecs explain` finds it. Errors: OSError,
subprocess.SubprocessError."""
import csv
import json
import subprocess
from dataclasses import dataclass

TIMEOUT_S = 3600


@dataclass(frozen=True)
class Codec:
    """bytes of a payload for each element; elements a second of one core, coded and decoded."""

    text: str
    bytes: float
    encode_speed: float
    decode_speed: float


def codec_facts(build, text, elements):
    """By a trial on normal random numbers."""
    said = subprocess.run([build / "cli" / "gradsieve", "codecs", "explain", text, "--elements", str(elements), "--json"],
                          capture_output=True, text=True, check=True, timeout=TIMEOUT_S)
    trial = json.loads(said.stdout)["on_noise"]
    tried = trial["elements"]
    return Codec(text, trial["payload_bytes"] / tried, tried / (trial["encode_ms"] / 1000), tried / (trial["decode_ms"] / 1000))


def simulate(build, nodes, plan, codec, down, **options):
    """Rows of gradsieve-simulate, numbers as floats. nodes: a list; options: its own, `step_ms=300` for --step-ms 300."""
    command = [build / "bench" / "scaling" / "gradsieve-simulate", "--nodes", *map(str, nodes), "--bytes", str(codec.bytes),
               "--down-bytes", str(down.bytes), "--encode-speed", str(codec.encode_speed), "--decode-speed", str(codec.decode_speed),
               "--down-encode-speed", str(down.encode_speed), "--down-decode-speed", str(down.decode_speed)]
    command += ["--sharded"] if plan == "sharded" else []
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        command += [flag] if value is True else [flag, str(value)]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=TIMEOUT_S)
    return [{key: value if key == "plan" else float(value) for key, value in row.items()} for row in csv.DictReader(said.stdout.splitlines())]
