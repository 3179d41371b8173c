"""Which ways are compared. Names are those of tables and files."""
from dataclasses import dataclass

IN_PLACE, FRAMEWORK = "in place", "framework"
MODES = (IN_PLACE, FRAMEWORK)
SECURITIES = ("plain", "curve")
DEFAULT_CODEC = "default"
# None: the built-in default, which for one gradient a step is topk(0.01) | pow2(bits=4) | auto.
CODECS = {DEFAULT_CODEC: None, "all | f32": "all | f32", "all | sign": "all | sign",
          "variance(3)": "variance(alpha=3) | pow2(bits=4) | auto"}
OURS, PEER, FLOOR = "ours", "peer", "floor"


@dataclass(frozen=True)
class Method:
    """One way to average. codec and security: of ours."""

    name: str
    kind: str
    codec: str | None = None
    security: str = ""


def ours_name(codec, security):
    return f"gradsieve {codec}, {'CURVE' if security == 'curve' else 'plain'}"


COPY = Method("one copy, both ranks", FLOOR)
GLOO = Method("Gloo all-reduce", PEER)
FP16 = Method("DDP fp16 hook", PEER)
POWER_SGD = {rank: Method(f"PowerSGD rank {rank}", PEER) for rank in (1, 4)}
PEERS = (GLOO, FP16, *POWER_SGD.values())
OUR_METHODS = tuple(Method(ours_name(name, security), OURS, codec, security) for security in SECURITIES for name, codec in CODECS.items())
OUR_DEFAULT = OUR_METHODS[0]
METHODS = {method.name: method for method in (*OUR_METHODS, *PEERS, COPY)}
EXACT = {GLOO.name, *(ours_name("all | f32", security) for security in SECURITIES)}  # give the mean itself
