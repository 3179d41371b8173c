"""Training processes for job_test.py and waiting_test.py. Gradients are small integers, so that every average has an
exact value that the test computes by itself. Run by rank_main.py."""
import hashlib
import signal
import sys
import threading
import time

import gradsieve

SHAPES = {"weight": (7, 13), "bias": (13,), "scalar": (), "empty": (0, 4)}
TIMEOUT_S = 30


def value(rank, step, element):
    """Of a rank's gradient."""
    return float((rank * 31 + step * 17 + element * 7) % 65 - 32)


def elements_of(shape):
    count = 1
    for extent in shape:
        count *= extent
    return count


def flat(view):
    """The values of a view as a list, with numpy or without."""
    return list(memoryview(view).cast("B").cast("f")) if memoryview(view).nbytes else []


def make_job(shapes=SHAPES, **options):
    job = gradsieve.Job("python", **{"codec": "all | f32", **options})
    return job, {name: job.add_tensor(name, shape) for name, shape in shapes.items()}


def averages(steps, codec="all | f32", without_numpy=False):
    """Some steps; the hash of all averages, and the first and last average in full."""
    if without_numpy:
        sys.modules["numpy"] = None
    job, tensors = make_job(codec=codec)
    digest, seen = hashlib.sha256(), {}
    with job:
        job.start(TIMEOUT_S)
        first = job.first_step()
        for step in range(first, first + steps):
            for name in sorted(tensors, reverse=job.rank % 2 == 1):  # in another order on every other rank
                tensor = tensors[name]
                view = tensor.gradient
                if count := elements_of(tensor.shape):
                    memoryview(view).cast("B").cast("f")[:] = floats([value(job.rank, step, i) for i in range(count)])
                tensor.submit(step)
            for name in sorted(tensors):
                result = tensors[name].wait(TIMEOUT_S)
                seen[f"{name} {step}"] = flat(result)
                digest.update(memoryview(result).tobytes())
            job.finish(step, TIMEOUT_S)
        job.check_equal(int.from_bytes(digest.digest()[:8], "little"), TIMEOUT_S)
        return {"rank": job.rank, "world_size": job.world_size, "type": type(result).__name__, "digest": digest.hexdigest(),
                "seen": seen}


def floats(values):
    import array

    return memoryview(array.array("f", values))


def broadcasts():
    """Parameters of rank 1, everywhere; then parameters that differ."""
    job, tensors = make_job({"weight": (3,)}, check_every=1)
    with job:
        job.start(TIMEOUT_S)
        tensors["weight"].write(floats([job.rank + 0.5] * 3))
        parameters = flat(job.broadcast(tensors["weight"], 1, TIMEOUT_S))
        job.check_parameters(0, [floats(parameters)], TIMEOUT_S)
        try:
            job.check_parameters(1, [floats([job.rank])], TIMEOUT_S)
        except gradsieve.Mismatch as error:
            return [parameters, str(error)]
    return [parameters, "no mismatch was seen"]


def non_finite():
    """A NaN on rank 0, under the policy that fails the step; then a good step."""
    job, tensors = make_job({"weight": (3,)})
    with job:
        job.start(TIMEOUT_S)
        tensors["weight"].submit(1, floats([float("nan") if job.rank == 0 else 1.0] * 3))
        try:
            tensors["weight"].wait(TIMEOUT_S)
            text = "no error was seen"
        except gradsieve.NonFinite as error:
            text = str(error)
        tensors["weight"].submit(2, floats([2.0] * 3))
        return [text, flat(tensors["weight"].wait(TIMEOUT_S))]


def leaves_and_comes_again(rounds):
    """The same job, left and started again at once: the first step of each round, and what it averaged."""
    seen = []
    for _ in range(rounds):
        job, tensors = make_job({"weight": (3,)})
        job.start(TIMEOUT_S)
        step = job.first_step()
        tensors["weight"].submit(step, floats([job.rank + 1.0] * 3))
        seen.append([step, flat(tensors["weight"].wait(TIMEOUT_S))])
        job.finish(step, TIMEOUT_S)
        job.detach(TIMEOUT_S)
    return seen


def say_once_waiting(waiter):
    """A thread that prints `waiting` once `waiter` is inside the package's wait, so that signals find it there."""

    def is_inside():
        frame = sys._current_frames().get(waiter.ident)
        while frame and frame.f_code.co_name != "wait_for":
            frame = frame.f_back
        return frame is not None

    def watch():
        deadline = time.monotonic() + TIMEOUT_S
        while not is_inside() and time.monotonic() < deadline:
            pass
        print("waiting", flush=True)

    threading.Thread(target=watch, daemon=True).start()


def wait_alone(seconds, in_thread=False):
    """Rank 0 waits for a rank that never hands in, and says when it begins and when it ended, by the machine's clock."""
    job, tensors = make_job({"weight": (3,)})
    job.start(TIMEOUT_S)
    if job.rank != 0:
        print("idle", flush=True)
        signal.pause()  # until it is killed
    tensors["weight"].submit(1)
    caught = []

    def wait():
        try:
            say_once_waiting(threading.current_thread())
            tensors["weight"].wait(seconds)
            caught.append("nothing")
        except BaseException as error:  # KeyboardInterrupt too
            caught.append(f"{type(error).__name__}: {error}")
        print(f"ended {time.monotonic()}", flush=True)

    if in_thread:
        thread = threading.Thread(target=wait)
        thread.start()
        thread.join()
    else:
        wait()
    return caught[0]


def interrupted_then_goes_on():
    """Ctrl-C in a wait loses nothing: the same wait goes on, and brings the average."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    job, tensors = make_job({"weight": (3,)})
    job.start(TIMEOUT_S)
    if job.rank != 0:
        print("idle", flush=True)
        signal.sigwait({signal.SIGUSR1})
        tensors["weight"].submit(1, floats([3.0] * 3))
        result = flat(tensors["weight"].wait(TIMEOUT_S))
        job.detach(TIMEOUT_S)
        return result
    tensors["weight"].submit(1, floats([1.0] * 3))
    try:
        say_once_waiting(threading.current_thread())
        tensors["weight"].wait(TIMEOUT_S)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    result = flat(tensors["weight"].wait(TIMEOUT_S))
    job.detach(TIMEOUT_S)
    return result
