"""A daemon and a rank in each namespace of a star. Of the command's own process; whatever it started is killed with it. Every
wait has a deadline. Errors: lab.processes.ProcessFailed."""
import json
import os
import subprocess
import sys

from lab.processes import SOURCE, Processes, ProcessFailed

START_TIMEOUT_S = 120
STEP_TIMEOUT_S = 300
PORT = 7077


class Cluster(Processes):
    """A context manager. plan: "gather" or "sharded"."""

    def __init__(self, star, build, plan, down):
        super().__init__(star.nodes, "gradsieve-scaling-")
        self._build, self._ranks = build, []
        config = f'[network]\nsecurity = "plain"\nround_deadline_s = {STEP_TIMEOUT_S}\n[state]\nkeep_minutes = 0\n[codec]\nplan = "{plan}"\ndown = "{down}"\n'
        for number, address in enumerate(star.addresses):
            config += f'[[node]]\nname = "n{number:03}"\naddress = "{address}"\nport = {PORT}\n'
        self._config = self._folder / "gradsieved.toml"
        self._config.write_text(config)

    def _socket(self, number):
        return self._folder / str(number) / "gradsieved.sock"

    def _make(self):
        daemons = []
        for number in range(len(self._namespaces)):
            folder = self._folder / str(number)
            folder.mkdir()
            daemons.append(self._spawn(number, f"gradsieved-{number}", [
                self._build / "daemon" / "gradsieved", "--config", self._config, "--node", f"n{number:03}", "--socket",
                self._socket(number), "--state", folder], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL))
        for number, daemon in enumerate(daemons):
            self._wait_for_file(daemon, self._folder / str(number) / "status", START_TIMEOUT_S)

    def start_ranks(self, codec, tensors):
        """A rank on each node; tensors: elements of each."""
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SOURCE / "bench"), str(SOURCE / "python")]),
                       "PYTHONDONTWRITEBYTECODE": "1", "GRADSIEVE_LIBRARY": str(self._build / "client" / "libgradsieve.so"),
                       "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        for number in range(len(self._namespaces)):
            options = {"rank": number, "world": len(self._namespaces), "codec": codec, "tensors": tensors,
                       "socket": str(self._socket(number)), "timeout_s": STEP_TIMEOUT_S}
            self._ranks.append(self._spawn(number, f"rank-{number}", [sys.executable, "-m", "scaling.rank", json.dumps(options)],
                                           stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment))
        for rank in self._ranks:
            self._answer(rank, START_TIMEOUT_S)

    def steps(self, count):
        """So many steps on all ranks: when the last rank ended each (seconds). Errors: also if averages differ."""
        for rank in self._ranks:
            rank.stdin.write(f"{count}\n".encode())
            rank.stdin.flush()
        answers = [self._answer(rank, count * STEP_TIMEOUT_S) for rank in self._ranks]
        if len({answer["checksum"] for answer in answers}) != 1:
            raise ProcessFailed("ranks have different averages")
        return [max(ends) for ends in zip(*(answer["ends"] for answer in answers))]

    def usage(self):
        """Of each daemon: CPU seconds so far, and bytes of host memory that its one job has."""
        found = []
        for number in range(len(self._namespaces)):
            said = subprocess.run([self._build / "cli" / "gradsieve", "status", "--json", "--socket", self._socket(number)],
                                  capture_output=True, text=True, check=True, timeout=START_TIMEOUT_S)
            page = json.loads(said.stdout)
            found.append((page["daemon"]["cpu_s"], page["jobs"][0]["memory_bytes"]))
        return found
