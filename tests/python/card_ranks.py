"""Training processes for card_binding_test.py: tensors in memory of the emulated card, without a framework. Run by rank_main.py."""
import ctypes
import os
import signal

import gradsieve

ELEMENTS = 3
TIMEOUT_S = 30


def card_memory():
    """ELEMENTS floats, and what names them to bind_device."""
    card = ctypes.CDLL(os.environ["GRADSIEVE_CUDA_DRIVER"])
    address = ctypes.c_void_p()
    error = card.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(4 * ELEMENTS))
    assert error == 0, f"cudaMalloc answered {error}"
    return (ctypes.c_float * ELEMENTS).from_address(address.value), gradsieve.DeviceBuffer(address.value, ELEMENTS)


def bind_late():
    """Rank 0 binds, which takes until rank 1 binds, and that waits for a signal. What rank 0's first try says, and the average."""
    job = gradsieve.Job("card", codec="all | f32")
    tensor = job.add_tensor("weight", (ELEMENTS,), on_device=True)
    values, buffer = card_memory()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    job.start(TIMEOUT_S)
    said = ""
    if job.rank == 1:
        print("idle", flush=True)
        signal.sigwait({signal.SIGUSR1})
    else:
        try:
            tensor.bind_device(buffer, timeout=0.35)  # some slices of a wait on the main thread
        except gradsieve.Timeout as late:
            said = str(late)
        print("late", flush=True)
    tensor.bind_device(buffer, timeout=TIMEOUT_S)
    values[:] = [job.rank + 1.0] * ELEMENTS
    tensor.submit(1)
    tensor.wait(TIMEOUT_S)
    job.finish(1, TIMEOUT_S)
    job.detach(TIMEOUT_S)
    return [said, list(values)]
