"""Four daemons (two nodes, plain text and CURVE) and two rank processes in the namespaces of a link. Of the command's own
process; whatever it started is killed with it. Every wait has a deadline."""
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

from lab.processes import SOURCE, Processes

from .catalog import SECURITIES
from .link import ADDRESSES, DEVICE

START_TIMEOUT_S = 300
STEP_TIMEOUT_S = 900
PORTS = {"plain": 7077, "curve": 7078}
GLOO_PORT = 7079
NODES = ("a", "b")
OPEN_BLAS = Path("/usr/lib/x86_64-linux-gnu/openblas-pthread")


def rank_threads():
    """Each rank's share of the cores."""
    return max(1, (os.cpu_count() or 1) // len(NODES))


def rank_environment(build):
    """Of processes with torch: the package of this tree, the library of the build, OpenBLAS where Debian's is installed."""
    threads = str(rank_threads())
    own = {"PYTHONPATH": os.pathsep.join([str(SOURCE / "bench"), str(SOURCE / "python")]), "PYTHONDONTWRITEBYTECODE": "1",
           "GRADSIEVE_LIBRARY": str(build / "client" / "libgradsieve.so"), "OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads,
           "TORCH_CPP_LOG_LEVEL": "ERROR", "GLOO_SOCKET_IFNAME": DEVICE, "MASTER_ADDR": ADDRESSES[0], "MASTER_PORT": str(GLOO_PORT)}
    if OPEN_BLAS.is_dir():
        own["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, [str(OPEN_BLAS), os.environ.get("LD_LIBRARY_PATH")]))
    return {**os.environ, **own}


class Cluster(Processes):
    """A context manager. sockets[node][security] is where a node's daemons listen. Errors: ProcessFailed."""

    def __init__(self, link, build):
        super().__init__(link.names, "gradsieve-slow-link-")
        self._build = build
        self._ranks = []
        self.sockets = [{security: str(self._folder / security / node / "gradsieved.sock") for security in SECURITIES} for node in NODES]

    def _make(self):
        for security in SECURITIES:
            self._start_daemons(security)

    def _start_daemons(self, security):
        folder = self._folder / security
        config = f'[network]\nsecurity = "{security}"\nround_deadline_s = {STEP_TIMEOUT_S}\n[state]\nkeep_minutes = 0\n'
        for node, address in zip(NODES, ADDRESSES):
            (folder / node).mkdir(parents=True)
            config += f'[[node]]\nname = "{node}"\naddress = "{address}"\nport = {PORTS[security]}\n'
            if security == "curve":
                made = subprocess.run([self._build / "cli" / "gradsieve", "keygen", "--out", folder / node], capture_output=True, text=True,
                                      check=True)
                config += f'public_key = "{made.stdout.split()[-1]}"\n'
        (folder / "gradsieved.toml").write_text(config)
        for place, node in enumerate(NODES):
            daemon = self._spawn(place, f"gradsieved-{security}-{node}",
                                 [self._build / "daemon" / "gradsieved", "--config", folder / "gradsieved.toml", "--node", node, "--socket",
                                  self.sockets[place][security], "--state", folder / node], stdin=subprocess.DEVNULL,
                                 stdout=subprocess.DEVNULL)
            self._wait_for_file(daemon, folder / node / "status", START_TIMEOUT_S)

    def start_ranks(self, parameters, gradients, methods):
        """Rank processes that are ready for `step` with these methods (names). One set of ranks at a time."""
        pair = socket.socketpair()
        for place, meeting in enumerate(pair):
            options = {"rank": place, "parameters": parameters, "gradients": str(gradients), "methods": list(methods),
                       "threads": rank_threads(), "sockets": self.sockets[place], "meeting_fd": meeting.fileno(),
                       "timeout_s": STEP_TIMEOUT_S}
            command = [sys.executable, "-m", "slow_link.rank", json.dumps(options)]
            self._ranks.append(self._spawn(place, f"rank-{place}-of-{parameters}", command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                           pass_fds=[meeting.fileno()], env=rank_environment(self._build)))
        for meeting in pair:
            meeting.close()
        for rank in self._ranks:
            self._answer(rank, START_TIMEOUT_S)

    def step(self, name, mode, gradient, is_checked=False):
        """One step on both ranks: their answers (rank.Rank.step)."""
        command = json.dumps({"name": name, "mode": mode, "gradient": gradient, "is_checked": is_checked}).encode() + b"\n"
        for rank in self._ranks:
            rank.stdin.write(command)
            rank.stdin.flush()
        return [self._answer(rank, STEP_TIMEOUT_S) for rank in self._ranks]

    def end_ranks(self):
        """Both leave their jobs and end."""
        for rank in self._ranks:
            rank.stdin.close()
        for rank in self._ranks:
            try:
                rank.wait(START_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                raise self._failed(rank, f"did not leave in {START_TIMEOUT_S} s") from None
            if rank.returncode:
                raise self._failed(rank, f"ended with {rank.returncode}")
            rank.stdout.close()
        self._ranks = []
