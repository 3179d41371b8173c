#!/usr/bin/env python3
"""Finding the library and checking its version; the package against gradsieve.h, which it repeats."""
import ctypes
import os
import re
import subprocess
import sys
import unittest

import gradsieve
from gradsieve import _library, errors
from python_cluster import PACKAGE, SOURCE

HEADER = (SOURCE / "client" / "include" / "gradsieve" / "gradsieve.h").read_text()


def load(path, statement="gradsieve.library_version()"):
    """What a fresh process that loads `path` says."""
    ran = subprocess.run([sys.executable, "-c", f"import gradsieve, gradsieve._library as l; {statement}"],
                         env={**os.environ, "GRADSIEVE_LIBRARY": path, "PYTHONPATH": str(PACKAGE)}, capture_output=True, text=True)
    return ran.stderr + ran.stdout


class LibraryTest(unittest.TestCase):
    def test_version_is_the_projects(self):
        project = re.search(r"project\(gradsieve VERSION (\S+)", (SOURCE / "CMakeLists.txt").read_text()).group(1)
        packed = re.search(r'^version = "(.*)"', (PACKAGE / "pyproject.toml").read_text(), flags=re.M).group(1)
        self.assertEqual([gradsieve.__version__, packed, gradsieve.library_version()], [project] * 3)

    def test_missing_library_says_which_and_what_to_do(self):
        self.assertRegex(load("/nowhere/libgradsieve.so.0"), r"Unavailable: .*/nowhere/libgradsieve.so.0.*: allowed is .*"
                         "libgradsieve0.*GRADSIEVE_LIBRARY.*; install the package")

    def test_without_the_variable_the_loader_looks_for_the_soname(self):
        self.assertIn("libgradsieve.so.0", load("", "l._open = lambda: print(l.os.environ.get(l.LIBRARY_VARIABLE) or l.SONAME);"
                                                "l.library()"))

    def test_another_library_is_refused(self):
        self.assertRegex(load("libc.so.6"), "VersionMismatch: .*libc.so.6 has not all functions.*: allowed is .*; install")

    def test_another_version_is_refused_with_both_named(self):
        said = load(os.environ["GRADSIEVE_LIBRARY"], "l.VERSION = '9.7.5'; gradsieve.library_version()")
        self.assertRegex(said, r"VersionMismatch: .* is version 0\.\d+\.\d+: allowed for the Python package 9\.7\.5 is 9\.7\.x")

    def test_every_code_of_the_header_has_its_class(self):
        codes = dict(re.findall(r"GRADSIEVE_([A-Z_]+) = (\d+),?\s*/\*", HEADER.split("typedef int32_t gradsieve_status")[1]
                                .split("};")[0]))
        codes.pop("OK", None)
        self.assertGreaterEqual(len(codes), 18)
        for name, number in codes.items():
            with self.subTest(name=name):
                error = errors.error_of(int(number), "text")
                self.assertEqual((error.code, error.name), (int(number), name.lower().replace("_", "-")))
                self.assertIsInstance(error, gradsieve.GradsieveError)
                self.assertEqual(str(error), f"{error.name}: text")

    def test_an_unknown_code_is_a_plain_error_that_keeps_its_number(self):
        self.assertEqual((type(errors.error_of(99, "t")), errors.error_of(99, "t").code), (gradsieve.GradsieveError, 99))

    def test_errors_survive_pickling_with_code_and_text(self):
        import pickle

        error = pickle.loads(pickle.dumps(gradsieve.NonFinite("words")))
        self.assertEqual((type(error), error.text, error.code), (gradsieve.NonFinite, "words", 11))

    def test_every_function_of_the_header_is_declared_or_known_to_be_unused(self):
        unused = {"status_name", "tensor_bind_device", "tensor_elements", "tensor_name"}
        declared = set(_library._FALLIBLE) | set(_library._INFALLIBLE) | {"version", "last_error", "job_free", "digest_of"}
        named = set(re.findall(r"\bgradsieve_(\w+)\(", re.sub(r"/\*.*?\*/", "", HEADER, flags=re.S)))
        self.assertEqual(named, declared | unused)

    def test_structs_have_the_fields_of_the_header(self):
        structs = {"job_options": _library.JobOptions, "tensor_options": _library.TensorOptions,
                   "device_buffer": _library.RawDeviceBuffer, "submit_options": _library.SubmitOptions}
        for name, struct in structs.items():
            body = re.search(rf"typedef struct gradsieve_{name} \{{(.*?)\}}", HEADER, flags=re.S).group(1)
            fields = re.findall(r"(\w+);", re.sub(r"/\*.*?\*/", "", body, flags=re.S))
            self.assertEqual(fields, [field for field, _ in struct._fields_])
            self.assertEqual(ctypes.sizeof(struct) % 8, 0)

    def test_digests_are_equal_for_equal_bytes(self):
        self.assertEqual(gradsieve.digest_of(b"abc"), gradsieve.digest_of(bytearray(b"abc")))
        self.assertNotEqual(gradsieve.digest_of(b"abc"), gradsieve.digest_of(b"abd"))


if __name__ == "__main__":
    unittest.main()
