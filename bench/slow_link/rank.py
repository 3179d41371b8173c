"""One rank, in its namespace: sets up all ways to average, then does one step after the other as standard input says (a line of JSON
each) and answers on standard output. The two ranks meet through a socket pair, which the slow link does not carry, so that
meeting takes none of its tokens."""
import gc
import json
import os
import socket
import sys
import time
import zlib
from pathlib import Path

from .catalog import METHODS
from .link import DEVICE

SETTLE_S = 0.02  # after each step: what follows a hand-back is sent, the buckets' tokens are full again, the counters still


def sent_bytes():
    """What the interface has sent, from its own counters."""
    for line in Path("/proc/self/net/dev").read_text().splitlines():
        name, _, numbers = line.partition(":")
        if name.strip() == DEVICE:
            return int(numbers.split()[8])
    raise RuntimeError(f"no interface '{DEVICE}' in this namespace")


class Rank:
    def __init__(self, options):
        import numpy
        import torch
        import torch.distributed as dist

        from . import network
        from .methods import Framework, make_method
        torch.set_num_threads(options["threads"])
        self._meeting = socket.socket(fileno=options["meeting_fd"])
        self._meeting.settimeout(options["timeout_s"])
        self._rank = options["rank"]
        dist.init_process_group("gloo", rank=self._rank, world_size=network.RANKS)
        self._gradients = numpy.load(options["gradients"], mmap_mode="r")
        torch.manual_seed(network.SEED)
        framework = Framework(network.make_network(options["parameters"]))
        self._methods = {name: make_method(METHODS[name], framework, self._rank, network.RANKS, options["sockets"], options["timeout_s"])
                         for name in options["methods"]}

    def meet(self):
        self._meeting.sendall(b".")
        if self._meeting.recv(1) != b".":
            raise RuntimeError("the other rank has ended")

    def step(self, name, mode, gradient, is_checked):
        """One step: when it began and ended (seconds, a clock that both ranks share) and bytes this node sent."""
        method = self._methods[name]
        method.prepare(mode, self._gradients[self._rank, gradient])
        gc.collect(0)
        self.meet()
        time.sleep(SETTLE_S)
        sent = sent_bytes()
        self.meet()
        began = time.monotonic()
        method.step(mode)
        ended = time.monotonic()
        self.meet()
        time.sleep(SETTLE_S)
        answer = {"began": began, "ended": ended, "bytes": sent_bytes() - sent}
        if is_checked:
            answer.update(self._checked(method, mode, gradient))
        return answer

    def _checked(self, method, mode, gradient):
        """A checksum of the average, and how far it is from the mean of the recorded gradients."""
        import numpy
        result = numpy.ascontiguousarray(method.result(mode))
        mean = self._gradients[:, gradient].mean(0)
        error = float(numpy.linalg.norm(result - mean) / numpy.linalg.norm(mean))
        return {"checksum": zlib.crc32(result), "error": error}

    def close(self):
        for method in self._methods.values():
            method.close()


def main():
    options = json.loads(sys.argv[1])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    rank = Rank(options)
    gc.disable()
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(rank.step(**json.loads(line))), file=answers, flush=True)
    rank.close()


if __name__ == "__main__":
    main()
