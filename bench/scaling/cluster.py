"""A daemon and a rank in each namespace of a star. Of the command's own process; whatever it started is killed with it. Every
wait has a deadline. Errors: slow_link.cluster.ProcessFailed."""
import json
import os
import selectors
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from slow_link import ending
from slow_link.cluster import LOOK_S, SOURCE, ProcessFailed, die_with_parent

START_TIMEOUT_S = 120
STEP_TIMEOUT_S = 300
PORT = 7077


class Cluster:
    """A context manager. plan: "gather" or "sharded"."""

    def __init__(self, star, build, plan, down):
        self._star, self._build = star, build
        self._folder = Path(tempfile.mkdtemp(prefix="gradsieve-scaling-"))
        self._processes, self._ranks = [], []
        config = f'[network]\nsecurity = "plain"\nround_deadline_s = {STEP_TIMEOUT_S}\n[state]\nkeep_minutes = 0\n[codec]\nplan = "{plan}"\ndown = "{down}"\n'
        for number, address in enumerate(star.addresses):
            config += f'[[node]]\nname = "n{number:03}"\naddress = "{address}"\nport = {PORT}\n'
        self._config = self._folder / "gradsieved.toml"
        self._config.write_text(config)

    def __enter__(self):
        try:
            self._start_daemons()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        for process, _ in reversed(self._processes):
            process.kill()
            process.wait()
        self._processes.clear()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _spawn(self, number, what, arguments, **options):
        ending.check()
        log = self._folder / f"{what}-{number}.log"
        with open(log, "wb") as output:
            process = subprocess.Popen(["ip", "netns", "exec", self._star.names[number], *map(str, arguments)], stderr=output,
                                       preexec_fn=die_with_parent, start_new_session=True, **options)
        self._processes.append((process, log))
        return process

    def _failed(self, process, what):
        log = next(log for spawned, log in self._processes if spawned is process)
        said = log.read_text(errors="replace").splitlines()[-15:]
        return ProcessFailed("\n".join([f"{log.stem} {what}; it said last:", *said]))

    def _socket(self, number):
        return self._folder / str(number) / "gradsieved.sock"

    def _start_daemons(self):
        daemons = []
        for number in range(len(self._star.names)):
            folder = self._folder / str(number)
            folder.mkdir()
            daemons.append(self._spawn(number, "gradsieved", [
                self._build / "daemon" / "gradsieved", "--config", self._config, "--node", f"n{number:03}", "--socket",
                self._socket(number), "--state", folder], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL))
        deadline = time.monotonic() + START_TIMEOUT_S
        for number, daemon in enumerate(daemons):
            while not (self._folder / str(number) / "status").exists():
                ending.check()
                if daemon.poll() is not None or time.monotonic() > deadline:
                    raise self._failed(daemon, "made no status page")
                time.sleep(0.02)

    def start_ranks(self, codec, tensors):
        """A rank on each node; tensors: elements of each."""
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SOURCE / "bench"), str(SOURCE / "python")]),
                       "PYTHONDONTWRITEBYTECODE": "1", "GRADSIEVE_LIBRARY": str(self._build / "client" / "libgradsieve.so"),
                       "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        for number in range(len(self._star.names)):
            options = {"rank": number, "world": len(self._star.names), "codec": codec, "tensors": tensors,
                       "socket": str(self._socket(number)), "timeout_s": STEP_TIMEOUT_S}
            self._ranks.append(self._spawn(number, "rank", [sys.executable, "-m", "scaling.rank", json.dumps(options)],
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
        for number in range(len(self._star.names)):
            said = subprocess.run([self._build / "cli" / "gradsieve", "status", "--json", "--socket", self._socket(number)],
                                  capture_output=True, text=True, check=True, timeout=START_TIMEOUT_S)
            page = json.loads(said.stdout)
            found.append((page["daemon"]["cpu_s"], page["jobs"][0]["memory_bytes"]))
        return found

    def _answer(self, rank, timeout_s):
        """The next line of a rank, which writes a line in one piece and no second one before it is asked."""
        deadline = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(rank.stdout, selectors.EVENT_READ)
            while not selector.select(LOOK_S):
                ending.check()
                if time.monotonic() > deadline:
                    raise self._failed(rank, f"did not answer in {timeout_s} s")
        line = rank.stdout.readline()
        if not line:
            raise self._failed(rank, f"ended with {rank.wait()}")
        return json.loads(line)
