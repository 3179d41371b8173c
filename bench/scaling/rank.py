"""One rank, in its namespace: a job of tensors of normal random numbers, which are handed in step after step as they are. Does as
many steps as a line of standard input says, and answers with when each ended (a clock that all ranks share)."""
import json
import sys
import time
import zlib

import numpy

import gradsieve


def main():
    options = json.loads(sys.argv[1])
    timeout = options["timeout_s"]
    random = numpy.random.default_rng(options["rank"])
    with gradsieve.Job("scaling", options["rank"], options["world"], run_id="scaling", codec=options["codec"],
                       socket_path=options["socket"]) as job:
        tensors = [job.add_tensor(f"t{number:04}", (size,)) for number, size in enumerate(options["tensors"])]
        job.start(timeout)
        for tensor in tensors:
            tensor.gradient[...] = random.standard_normal(tensor.gradient.shape, numpy.float32)
        step = job.first_step()
        print(json.dumps({"ready": True}), flush=True)
        for line in sys.stdin:
            ends = []
            for _ in range(int(line)):
                for tensor in tensors:
                    tensor.submit(step)
                averages = [tensor.wait(timeout) for tensor in tensors]
                ends.append(time.monotonic())
                step += 1
            checksum = 0
            for average in averages:
                checksum = zlib.crc32(average, checksum)
            print(json.dumps({"ends": ends, "checksum": checksum}), flush=True)


if __name__ == "__main__":
    main()
