#!/usr/bin/env python3
"""An example, named on the command line, is built outside of the tree against a library that was installed into an empty
folder, and runs on two daemons. Skipped where what it needs of Debian is not installed."""
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from python_cluster import BUILD, SOURCE, Cluster, skip_program

DATASET = Path("/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz")
NEEDS = {"c_minimal": {}, "cpp_mnist": {"dataset-fashion-mnist": DATASET, "zlib1g-dev": Path("/usr/include/zlib.h")},
         "libtorch_mnist": {"dataset-fashion-mnist": DATASET, "libtorch-dev": Path("/usr/include/torch/csrc/api/include/torch/torch.h")}}
TRAINED = re.compile(r"^rank (\d): accuracy (\S+), parameters (\w{16})$", flags=re.M)
ACCURACY = 0.6  # guessing is 0.1; both learn more than this in a hundred steps
BUILD_S, RUN_S = 300, 60


def run(*arguments):
    """Ends the test with the command's words if it fails."""
    ran = subprocess.run([str(argument) for argument in arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, text=True, timeout=BUILD_S)
    if ran.returncode != 0:
        raise AssertionError(f"{arguments} ended with {ran.returncode}; it said:\n{ran.stdout}")


class InstalledExamplesTest(unittest.TestCase):
    example = ""

    def build(self):
        """The program, built with the example's own CMakeLists.txt. Of the sources it sees the folder examples/ alone."""
        folder = Path(tempfile.mkdtemp(prefix="gradsieve-example-"))
        self.addCleanup(shutil.rmtree, folder)
        for component in ("runtime-lib", "dev"):
            run("cmake", "--install", BUILD, "--prefix", folder / "prefix", "--component", component)
        shutil.copytree(SOURCE / "examples", folder / "examples")
        own = folder / "examples" / self.example
        self.assertTrue((own / "README.md").is_file())
        run("cmake", "-S", own, "-B", folder / "build", f"-DCMAKE_PREFIX_PATH={folder / 'prefix'}")
        run("cmake", "--build", folder / "build")
        return folder / "build" / self.example

    def outputs_on_two_nodes(self, *options):
        program = self.build()
        with Cluster(2) as cluster:
            ranks = cluster.start_programs([program, *options], 2, interpreter=())
            for rank in ranks:
                self.assertEqual(rank.wait_for_exit(RUN_S), 0, rank.output)
            return [rank.output for rank in ranks]

    def test_an_installed_library_builds_it_and_two_nodes_run_it(self):
        if self.example == "c_minimal":
            for rank, output in enumerate(self.outputs_on_two_nodes()):
                self.assertEqual(output.splitlines(), [f"rank {rank}, step {step}: mean 0.5" for step in (1, 2, 3)])
            return
        outputs = self.outputs_on_two_nodes("--steps", "150")
        lines = [TRAINED.search(output) for output in outputs]
        self.assertEqual([line and line.group(1) for line in lines], ["0", "1"], outputs)
        self.assertEqual(lines[0].group(3), lines[1].group(3))
        for line in lines:
            self.assertGreater(float(line.group(2)), ACCURACY)


if __name__ == "__main__":
    InstalledExamplesTest.example = sys.argv.pop(1)
    for package, file in NEEDS[InstalledExamplesTest.example].items():
        if not file.exists():
            skip_program(f"{package} is not installed (apt install {package})")
    unittest.main()
