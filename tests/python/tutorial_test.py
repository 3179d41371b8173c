#!/usr/bin/env python3
"""docs/tutorial.md: its ten commands are run as they stand there, but for ports. The installation is simulated by apt with the
packages that `./dev package` built; the booted root of tests/systemd installs them in earnest."""
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from python_cluster import BUILD, PACKAGE, SOURCE, Process, free_port, require_module

require_module("torch", "python3-torch")

PAGE = (SOURCE / "docs" / "tutorial.md").read_text()
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", PAGE, flags=re.S | re.M)
PORTS = ("7177", "7178", "29500")
DATASET = Path("/usr/share/datasets/fashion-mnist")
ACCURACY = 0.7  # guessing is 0.1


class TutorialTest(unittest.TestCase):
    def test_it_has_ten_numbered_commands(self):
        self.assertEqual([int(number) for number in re.findall(r"^## (\d+)\. ", PAGE, flags=re.M)], list(range(1, 11)))
        self.assertEqual(len(BLOCKS), 10)

    def test_apt_would_install_the_packages(self):
        if not list((SOURCE / "build" / "package").glob("python3-gradsieve_*.deb")):
            self.skipTest("no packages in build/package: ./dev package")
        command = BLOCKS[0].replace("apt install", "apt-get install --simulate --quiet")
        ran = subprocess.run(["bash", "-c", command], cwd=SOURCE, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
        for package in ("gradsieve", "libgradsieve0", "python3-gradsieve"):
            self.assertRegex(ran.stdout, rf"(Inst {package} |^{package} is already the newest)")

    def script(self, folder):
        """Commands 2 to 10; each one's end is marked in the output. `peers` is asked again until the other node is up."""
        programs = folder / "programs"
        programs.mkdir()
        for name, place in (("gradsieve", "cli"), ("gradsieved", "daemon")):
            (programs / name).symlink_to(BUILD / place / name)
        blocks = BLOCKS[1:]
        for word in PORTS:
            port, lock = free_port()
            self.addCleanup(lock.close)
            blocks = [block.replace(word, str(port)) for block in blocks]
        peers = blocks[5]
        self.assertIn("gradsieve peers", peers)
        blocks[5] = f"until {peers.strip()} | grep -E '^ +b .* up '; do :; done\n"
        lines = ["set -e", "trap 'kill $(jobs -p); wait' EXIT"]
        for number, block in enumerate(blocks, 2):
            lines += [block, f"echo 'done: {number}'"]
        path = folder / "commands.sh"
        path.write_text("\n".join(lines))
        # Unbuffered, a line and its end are two writes, between which the other rank's line may come.
        environment = {name: text for name, text in os.environ.items()
                       if not name.startswith("GRADSIEVE_") and name != "PYTHONUNBUFFERED"}
        environment.update(HOME=str(folder), PATH=f"{programs}:/usr/bin:/bin", PYTHONPATH=str(PACKAGE), PYTHONDONTWRITEBYTECODE="1", OMP_NUM_THREADS="1",
                           GRADSIEVE_LIBRARY=os.environ["GRADSIEVE_LIBRARY"])
        return ["bash", "-c", f"cd {folder} && exec bash commands.sh"], environment

    def test_the_commands_train_on_two_nodes(self):
        if not DATASET.is_dir():
            self.skipTest("dataset-fashion-mnist is not installed")
        folder = Path(tempfile.mkdtemp(prefix="gradsieve-tutorial-"))
        self.addCleanup(shutil.rmtree, folder)
        process = Process(*self.script(folder))
        self.addCleanup(process.end)
        self.assertEqual(process.wait_for_exit(120), 0, process.output)
        self.assertEqual(re.findall(r"^done: (\d+)$", process.output, flags=re.M), [str(number) for number in range(2, 11)])
        said = dict(zip(range(2, 11), re.split(r"^done: \d+\n", process.output, flags=re.M)))
        self.assertIn("effective values", said[5])
        ranks = re.findall(r"^rank (\d): accuracy (\S+), parameters (\w{16})$", said[9], flags=re.M)
        self.assertEqual(sorted(rank for rank, _, _ in ranks), ["0", "1"], said[9])
        self.assertEqual(len({digest for _, _, digest in ranks}), 1)
        for _, accuracy, _ in ranks:
            self.assertGreater(float(accuracy), ACCURACY)
        self.assertRegex(said[10], "tutorial.*all ranks detached")
        self.assertRegex(said[10], r"tutorial.* 400 steps · wire ratio 1\d\d\.\d")


if __name__ == "__main__":
    unittest.main()
