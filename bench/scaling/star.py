"""Network namespaces around a switch in one more: a veth pair each, both ends limited by `tc tbf`, so that every node sends and
receives at one rate. Needs root. Everything ends with the object; what a killed run left behind is removed by the next one.
Of the command's own process."""
import json
import os

from slow_link.link import LATENCY, NAMESPACES, run

from pathlib import Path

PREFIX = "gradsieve-scale-"
DEVICE = "gsc0"  # in each node's namespace
BRIDGE = "gsb"
NODES_MAX = 200


def remove_stale():
    """Namespaces of runs that were killed: their name ends in the pid that made them."""
    for entry in NAMESPACES.glob(PREFIX + "*") if NAMESPACES.is_dir() else ():
        pid = entry.name.rpartition("-")[2]
        if pid.isdigit() and not Path("/proc", pid).exists():
            run("ip", "netns", "delete", entry.name)


class Star:
    """A context manager: namespaces `names`, with `addresses`. Errors: slow_link.link.LinkError."""

    def __init__(self, nodes, bits_per_s, burst_bytes):
        if not 2 <= nodes <= NODES_MAX:
            raise ValueError(f"{nodes} nodes: allowed are 2 to {NODES_MAX}")
        remove_stale()
        self.names = [f"{PREFIX}{number}-{os.getpid()}" for number in range(nodes)]
        self.addresses = [f"10.79.1.{number + 1}" for number in range(nodes)]
        self._switch = f"{PREFIX}switch-{os.getpid()}"
        self._limit = ("tbf", "rate", f"{int(bits_per_s)}bit", "burst", str(burst_bytes), "latency", LATENCY)

    def __enter__(self):
        try:
            self._make()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def _make(self):
        run("ip", "netns", "add", self._switch)
        run("ip", "-n", self._switch, "link", "add", BRIDGE, "type", "bridge")
        run("ip", "-n", self._switch, "link", "set", BRIDGE, "up")
        for number, (name, address) in enumerate(zip(self.names, self.addresses)):
            port = f"gsp{number}"
            run("ip", "netns", "add", name)
            run("ip", "link", "add", DEVICE, "netns", name, "type", "veth", "peer", "name", port, "netns", self._switch)
            run("ip", "-n", self._switch, "link", "set", port, "master", BRIDGE)
            run("ip", "-n", self._switch, "link", "set", port, "up")
            run("tc", "-n", self._switch, "qdisc", "add", "dev", port, "root", *self._limit)
            run("ip", "-n", name, "address", "add", address + "/24", "dev", DEVICE)
            run("ip", "-n", name, "link", "set", "lo", "up")
            run("ip", "-n", name, "link", "set", DEVICE, "up")
            run("tc", "-n", name, "qdisc", "add", "dev", DEVICE, "root", *self._limit)

    def close(self):
        for name in [*self.names, self._switch]:
            if (NAMESPACES / name).exists():
                run("ip", "netns", "delete", name)

    def sent_bytes(self):
        """What each node's interface has sent, by its own counter."""
        return [json.loads(run("ip", "-n", name, "-s", "-j", "link", "show", "dev", DEVICE))[0]["stats64"]["tx"]["bytes"]
                for name in self.names]
