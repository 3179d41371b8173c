#!/usr/bin/env python3
"""`pip install ./python` into an empty venv with no network, for the Pythons 3.11 and 3.12 of this machine; the installed
package averages through a daemon. Standard library alone, no setuptools, no compiler."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

from python_cluster import PACKAGE, Cluster, skip_program

FIRST_MINOR, LAST_MINOR = 11, 12
# Nothing may be downloaded: an index that nobody serves, and proxies that nobody listens on.
OFFLINE = {"PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_CACHE_DIR": "1", "http_proxy": "http://127.0.0.1:9",
           "https_proxy": "http://127.0.0.1:9", "PIP_CONFIG_FILE": os.devnull}

# A job of one rank, with the installed package.
ONE_STEP = """
import array, pathlib, sys, gradsieve
print(gradsieve.__file__)
print((pathlib.Path(gradsieve.__file__).parent / 'py.typed').exists())
with gradsieve.Job('installed', 0, 1, codec='all | f32', socket_path=sys.argv[1]) as job:
    weight = job.add_tensor('weight', (2,))
    job.start(30)
    weight.submit(1, array.array('f', [1.5, -2]))
    print([float(value) for value in weight.wait(30)])
"""


def environment():
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("PYTHON", "PIP_"))}
    return {**kept, **OFFLINE}


def run(*arguments):
    return subprocess.run([str(argument) for argument in arguments], env=environment(), capture_output=True, text=True,
                          stdin=subprocess.DEVNULL)


def interpreters():
    """Those that start and have pip, one for each version."""
    found = {}
    names = [sys.executable, *(f"python3.{minor}" for minor in range(FIRST_MINOR, LAST_MINOR + 1))]
    pyenv = Path.home() / ".pyenv" / "versions"
    names += sorted(str(path) for path in pyenv.glob("3.*/bin/python3")) if pyenv.is_dir() else []
    for name in names:
        path = shutil.which(name)
        ran = run(path, "-c", "import sys, venv, pip; print(*sys.version_info[:2], sep='.')") if path else None
        if ran and ran.returncode == 0 and FIRST_MINOR <= int(ran.stdout.strip().split(".")[1]) <= LAST_MINOR:
            found.setdefault(ran.stdout.strip(), path)
    return found


class InstallTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="gradsieve-venv-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def check(self, interpreter, python, *options):
        """`python` is that of a venv; `interpreter`'s pip works on it."""
        pip = [interpreter, "-m", "pip", "--python", python]
        sources = self.folder / "python"  # a copy: nothing may be written into the tree, or needed from it
        shutil.copytree(PACKAGE, sources, ignore=shutil.ignore_patterns("__pycache__"))
        installed = run(*pip, "install", "--no-compile", *options, sources)
        self.assertEqual(installed.returncode, 0, installed.stdout + installed.stderr)
        shutil.rmtree(sources)
        with Cluster() as cluster:
            said = run(python, "-c", ONE_STEP, cluster.socket())
        self.assertEqual(said.returncode, 0, said.stderr)
        place, is_typed, average = said.stdout.split("\n")[:3]
        self.assertIn(str(self.folder / "venv"), place)
        self.assertEqual((is_typed, average), ("True", "[1.5, -2.0]"))
        gone = run(*pip, "uninstall", "-y", "gradsieve")
        self.assertEqual(gone.returncode, 0, gone.stderr)
        self.assertNotEqual(run(python, "-c", "import gradsieve").returncode, 0)

    def test_installs_offline_in_a_venv_with_and_without_build_isolation(self):
        for version, interpreter in interpreters().items():
            with self.subTest(version=version):
                made = run(interpreter, "-m", "venv", "--without-pip", self.folder / f"venv{version}")
                self.assertEqual(made.returncode, 0, made.stdout + made.stderr)
                python = self.folder / f"venv{version}" / "bin" / "python3"
                self.check(interpreter, python)
                if interpreter == sys.executable:
                    self.check(interpreter, python, "--no-build-isolation", "--no-index")

    def test_the_same_sources_give_the_same_wheel_with_every_module(self):
        build = "import sys; sys.path.insert(0, sys.argv[1]); import gradsieve_build; print(gradsieve_build.build_wheel(sys.argv[2]))"
        wheels = []
        for name in ("one", "two"):
            (self.folder / name).mkdir()
            made = run(sys.executable, "-B", "-c", build, PACKAGE / "build_backend", self.folder / name)
            self.assertEqual(made.returncode, 0, made.stderr)
            wheels.append(self.folder / name / made.stdout.strip())
        self.assertEqual(wheels[0].read_bytes(), wheels[1].read_bytes())
        names = set(zipfile.ZipFile(wheels[0]).namelist())
        self.assertLessEqual({path.relative_to(PACKAGE).as_posix() for path in (PACKAGE / "gradsieve").rglob("*.py")}, names)


if __name__ == "__main__":
    if not interpreters():
        skip_program("no Python 3.11 or 3.12 with pip: python3-pip is not installed (./dev setup --full)")
    unittest.main()
