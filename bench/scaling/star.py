"""Network namespaces around a switch in one more: a veth pair each, both ends limited by `tc tbf`, so that every node sends and
receives at one rate. Needs root. Everything ends with the object; what a killed run left behind is removed by the next one.
Of the command's own process."""
import json

from lab.namespaces import LATENCY, Namespaces, run

PREFIX = "gradsieve-scale-"
DEVICE = "gsc0"  # in each node's namespace
BRIDGE = "gsb"
NODES_MAX = 200


class Star(Namespaces):
    """A context manager: namespaces of `nodes`, with `addresses`. Errors: lab.namespaces.LinkError."""

    def __init__(self, nodes, bits_per_s, burst_bytes):
        if not 2 <= nodes <= NODES_MAX:
            raise ValueError(f"{nodes} nodes: allowed are 2 to {NODES_MAX}")
        super().__init__(PREFIX, [*range(nodes), "switch"])
        *self.nodes, self._switch = self.names
        self.addresses = [f"10.79.1.{number + 1}" for number in range(nodes)]
        self._limit = ("tbf", "rate", f"{int(bits_per_s)}bit", "burst", str(burst_bytes), "latency", LATENCY)

    def _make(self):
        run("ip", "netns", "add", self._switch)
        run("ip", "-n", self._switch, "link", "add", BRIDGE, "type", "bridge")
        run("ip", "-n", self._switch, "link", "set", BRIDGE, "up")
        for number, (name, address) in enumerate(zip(self.nodes, self.addresses)):
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

    def sent_bytes(self):
        """What each node's interface has sent, by its own counter."""
        return [json.loads(run("ip", "-n", name, "-s", "-j", "link", "show", "dev", DEVICE))[0]["stats64"]["tx"]["bytes"]
                for name in self.nodes]
