"""Real daemons from the build tree and training processes for the tests of the Python package. Everything lies in one
temporary folder and ends with the object. Every wait has a deadline. Runs in the test's own process."""
import fcntl
import importlib.util
import json
import os
import random
import re
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parents[1]
BUILD = Path(os.environ["GRADSIEVE_BUILD"])  # set by CTest
PACKAGE = SOURCE / "python"
DEADLINE_S = 60
# As tests/e2e/cluster.cpp: below the kernel's own range, a lock file for each port that is taken.
FIRST_PORT, PORT_COUNT = 20_000, 10_000
# Names of rank, world size and rank on the machine.
TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
SLURM = ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID")
PORT_LOCKS = Path(tempfile.gettempdir()) / "gradsieve-test-ports"


def skip_program(reason):
    """Ends a test program as skipped, as CTest and the totals see it."""
    print(f"skipped: {reason}")
    sys.exit(77)


def require_module(name, package):
    """Skips the whole program where Debian's `package` is missing."""
    if importlib.util.find_spec(name) is None:
        skip_program(f"{package} is not installed (./dev setup --full)")


def free_port():
    """A TCP port on loopback and the lock that keeps others of our tests away from it."""
    PORT_LOCKS.mkdir(exist_ok=True)
    for _ in range(1000):
        port = FIRST_PORT + random.SystemRandom().randrange(PORT_COUNT)
        lock = open(PORT_LOCKS / str(port), "a")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
            return port, lock
        except OSError:
            lock.close()
    raise RuntimeError("no free port")


class Process:
    """A child whose merged output is read line by line; killed with the object."""

    def __init__(self, arguments, environment=None):
        self._child = subprocess.Popen([str(argument) for argument in arguments], env=environment, stdin=subprocess.DEVNULL,
                                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._child.stdout, selectors.EVENT_READ)
        self.output = ""
        self._scanned = 0

    @property
    def pid(self):
        return self._child.pid

    def send_signal(self, number):
        self._child.send_signal(number)

    def _read_more(self, deadline):
        """False at the deadline and at the end of output."""
        if not self._selector.select(max(deadline - time.monotonic(), 0)):
            return False
        piece = os.read(self._child.stdout.fileno(), 65536)
        self.output += piece.decode(errors="replace")
        return bool(piece)

    def wait_for_line(self, prefix, timeout_s=DEADLINE_S):
        """The rest of the next line that begins with `prefix`."""
        return self._next_line(lambda line: line.startswith(prefix), f"'{prefix}...'", timeout_s)[len(prefix):]

    def wait_for_words(self, words, timeout_s=DEADLINE_S):
        """The next line that has `words` somewhere, from them on."""
        line = self._next_line(lambda line: words in line, f"'...{words}...'", timeout_s)
        return line[line.index(words):]

    def _next_line(self, is_wanted, name, timeout_s):
        deadline = time.monotonic() + timeout_s
        while True:
            while (end := self.output.find("\n", self._scanned)) >= 0:
                line, self._scanned = self.output[self._scanned:end], end + 1
                if is_wanted(line):
                    return line
            if not self._read_more(deadline):
                raise AssertionError(f"no line {name} in {timeout_s} s; it said:\n{self.output}")

    def wait_for_exit(self, timeout_s=DEADLINE_S):
        """The exit status, and all output in `output`."""
        deadline = time.monotonic() + timeout_s
        while self._read_more(deadline):
            pass
        try:
            return self._child.wait(max(deadline - time.monotonic(), 0.1))
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {timeout_s} s; it said:\n{self.output}") from None

    def said(self):
        """All that it has said so far."""
        while self._read_more(time.monotonic()):
            pass
        return self.output

    def end(self):
        self._child.kill()
        self._child.wait()
        self._selector.close()
        self._child.stdout.close()


class Cluster:
    """`nodes` daemons on loopback; a context manager."""

    def __init__(self, nodes=1, extra="", network=""):
        self.folder = Path(tempfile.mkdtemp(prefix="gradsieve-python-"))
        self._ports = [free_port() for _ in range(nodes)]
        config = f'{extra}\n[network]\nsecurity = "plain"\n{network}\n'
        for node, (port, _) in enumerate(self._ports if nodes > 1 else []):
            config += f'[[node]]\nname = "{self._name(node)}"\naddress = "127.0.0.1"\nport = {port}\n'
        (self.folder / "gradsieved.toml").write_text(config)
        self._processes, self._locks = [], []
        self.daemons = [self._start_daemon(node) for node in range(nodes)]

    @staticmethod
    def _name(node):
        return "abcdefgh"[node]

    def socket(self, node=0):
        return str(self.folder / self._name(node) / "gradsieved.sock")

    def _start_daemon(self, node):
        state = self.folder / self._name(node)
        state.mkdir(exist_ok=True)
        name = ["--node", self._name(node)] if len(self._ports) > 1 else []
        daemon = Process([BUILD / "daemon" / "gradsieved", "--config", self.folder / "gradsieved.toml", "--socket",
                          self.socket(node), "--state", state, *name])
        self._processes.append(daemon)
        daemon.wait_for_line("")  # said once it listens
        return daemon

    def kill_daemon(self, node=0):
        self.daemons[node].send_signal(signal.SIGKILL)
        self.daemons[node].wait_for_exit()

    def start_ranks(self, function, world, environment=None, **arguments):
        """`world` processes that run `function` ("module:name") of this folder."""
        return self.start_programs([HERE / "rank_main.py", function, json.dumps(arguments)], world, TORCHRUN, environment)

    def start_programs(self, program, world, launcher=TORCHRUN, environment=None, interpreter=(sys.executable,)):
        """`world` processes of a Python program, or of another one without `interpreter`, dealt to the nodes in equal runs,
        with a launcher's variables."""
        master, lock = free_port()  # for torch.distributed
        started = []
        for rank in range(world):
            own = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(master),
                   "GRADSIEVE_SOCKET": self.socket(rank * len(self._ports) // world)}
            own.update(zip(launcher, (str(rank), str(world), str(rank))))
            started.append(Process([*interpreter, *program], rank_environment({**own, **(environment or {})})))
        self._processes += started
        self._locks.append(lock)
        return started

    def run_ranks(self, function, world, timeout_s=DEADLINE_S, environment=None, **arguments):
        """What `function` gave back on each rank; all have to end well."""
        return [result_of(process, timeout_s) for process in self.start_ranks(function, world, environment, **arguments)]

    def close(self):
        for process in reversed(self._processes):
            process.end()
        for lock in [lock for _, lock in self._ports] + self._locks:
            lock.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def result_of(process, timeout_s=DEADLINE_S):
    """What a rank's function gave back, once it has ended well."""
    status = process.wait_for_exit(timeout_s)
    found = re.search(r"^result (.*)$", process.output, flags=re.M)
    if status != 0 or not found:
        raise AssertionError(f"a rank ended with {status}; it said:\n{process.output}")
    return json.loads(found.group(1))


def rank_environment(own):
    """This process's environment for a training process: the package of the source tree, the library of the build."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(PACKAGE), str(HERE)]), "PYTHONUNBUFFERED": "1",
            "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1", **own}
