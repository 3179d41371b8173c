"""Two network namespaces joined by a link that `tc tbf` limits at both ends. Needs root. Everything ends with the object; what a
killed run left behind is removed by the next one. Of the command's own process."""
import ctypes
import socket
import threading
import time
from dataclasses import dataclass

from lab.namespaces import LATENCY, NAMESPACES, LinkError, Namespaces, run

PREFIX = "gradsieve-slow-"
DEVICE = "gsl0"  # in each namespace
ADDRESSES = ("10.78.0.1", "10.78.0.2")
SILENCE_S = 0.05  # before a single message: as long as it takes any of the token buckets to fill
BURSTS_MIN = 5  # from this size on a message has to feel the limit
SHARE_MIN = 0.8
CHECK_PORT = 7100
CHECK_TIMEOUT_S = 120
REPEATS = 3


@dataclass(frozen=True)
class Rate:
    """A link's speed each way, and the token bucket that goes with it: with a larger one, small payloads do not feel the limit."""

    name: str
    bits_per_s: float
    burst_kib: int

    @property
    def burst_bytes(self):
        return self.burst_kib * 1024

    def wire_s(self, size):
        """Seconds that `size` bytes take on the wire."""
        return size * 8 / self.bits_per_s

    def is_exempt(self, size):
        """Whether so small a payload may pass on the bucket's tokens alone."""
        return size < BURSTS_MIN * self.burst_bytes


RATES = {rate.name: rate for rate in (Rate("100M", 100e6, 16), Rate("1G", 1e9, 64), Rate("10G", 10e9, 256))}


class Link(Namespaces):
    """A context manager: namespaces `names[0]` and `names[1]`, unlimited until `shape`. Errors: LinkError."""

    def __init__(self):
        super().__init__(PREFIX, "ab")
        self.rate = None

    def _make(self):
        for name in self.names:
            run("ip", "netns", "add", name)
        run("ip", "link", "add", DEVICE, "netns", self.names[0], "type", "veth", "peer", "name", DEVICE, "netns", self.names[1])
        for name, address in zip(self.names, ADDRESSES):
            run("ip", "-n", name, "address", "add", address + "/24", "dev", DEVICE)
            run("ip", "-n", name, "link", "set", "lo", "up")
            run("ip", "-n", name, "link", "set", DEVICE, "up")

    def shape(self, rate):
        """Limits both ends to `rate`; None: unlimited again."""
        for name in self.names:
            if self.rate is not None:
                run("tc", "-n", name, "qdisc", "delete", "dev", DEVICE, "root")
            if rate is not None:
                run("tc", "-n", name, "qdisc", "add", "dev", DEVICE, "root", "tbf", "rate", f"{int(rate.bits_per_s)}bit", "burst",
                    str(rate.burst_bytes), "latency", LATENCY)
        self.rate = rate

    def limits(self):
        """What the kernel says of both ends."""
        return [run("tc", "-n", name, "qdisc", "show", "dev", DEVICE).strip() for name in self.names]

    def check(self, sizes, rate):
        """Sends single messages of each size, each after a silence, and gives {size: seconds}, the shortest of REPEATS in either
        direction. Errors: LinkError, where one of BURSTS_MIN bursts or more took less than SHARE_MIN of its time at `rate`."""
        found = {}
        for size in sorted(set(sizes)):
            seconds = min(self._message_seconds(size, sender) for sender in (0, 1))
            found[size] = seconds
            least_s = SHARE_MIN * rate.wire_s(size)
            if not rate.is_exempt(size) and seconds < least_s:
                raise LinkError(f"the link does not limit: a single message of {size} B took {1000 * seconds:.2f} ms at {rate.name}, "
                                f"allowed are {1000 * least_s:.2f} ms or more ({SHARE_MIN} x bytes x 8 / rate); the kernel says "
                                f"'{self.limits()[0]}': use a smaller burst")
        return found

    def _message_seconds(self, size, sender):
        """The shortest of REPEATS messages from one end to the other, from the first byte's sending to the last byte's arrival."""
        with self._socket(1 - sender) as listener:
            listener.bind((ADDRESSES[1 - sender], CHECK_PORT))
            listener.listen()
            with self._socket(sender) as source:
                source.connect((ADDRESSES[1 - sender], CHECK_PORT))
                sink, _ = listener.accept()
                with sink:
                    sink.settimeout(CHECK_TIMEOUT_S)
                    return min(_one_message(source, sink, size) for _ in range(REPEATS))

    def _socket(self, end):
        """A TCP socket inside a namespace: a socket stays in that of the thread that made it."""
        found = []

        def make():
            with open(NAMESPACES / self.names[end]) as namespace:
                enter_namespace(namespace.fileno())
            made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.settimeout(CHECK_TIMEOUT_S)
            found.append(made)

        thread = threading.Thread(target=make)
        thread.start()
        thread.join()
        if not found:
            raise LinkError(f"no socket in the namespace {self.names[end]}: is this process root?")
        return found[0]


def enter_namespace(fd):
    """Moves the calling thread into a network namespace. Errors: OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(fd, 0x40000000):  # CLONE_NEWNET
        raise OSError(ctypes.get_errno(), "setns: not allowed to enter a network namespace")


def _one_message(source, sink, size):
    """Seconds of one message after a silence."""
    arrived = []

    def receive():
        left = size
        buffer = bytearray(1 << 20)
        while left:
            got = sink.recv_into(buffer, min(left, len(buffer)))
            if not got:
                return
            left -= got
        arrived.append(time.monotonic())

    message = bytes(size)
    source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    thread = threading.Thread(target=receive)
    thread.start()
    time.sleep(SILENCE_S)
    started = time.monotonic()
    source.sendall(message)
    thread.join(CHECK_TIMEOUT_S)
    if not arrived:
        raise LinkError(f"a message of {size} B did not arrive in {CHECK_TIMEOUT_S} s: is the link up?")
    return arrived[0] - started
