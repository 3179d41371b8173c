#!/usr/bin/env python3
"""Reading status pages that are made here by the table in docs/shared-memory.md: whole, half-written, foreign, cut off."""
import json
import os
import shutil
import struct
import tempfile
import unittest
from pathlib import Path

import gradsieve

CAPACITY = 256
HEADER_BYTES, HEAD_BYTES = 4096, 64


def page(copies, magic=b"GSVSTAT\0", version=1):
    """The bytes of a page; `copies`: (sequence, document) of both."""
    header = struct.pack("<8sIIQQQQ", magic, version, 1, 0, 0, 0, CAPACITY).ljust(HEADER_BYTES, b"\0")
    return header + b"".join(struct.pack("<QQQ", sequence, len(text), 0).ljust(HEAD_BYTES, b"\0") + text.ljust(CAPACITY, b"\0")
                             for sequence, text in copies)


def document(number):
    return json.dumps({"number": number}).encode()


class StatusTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="gradsieve-status-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def read(self, content):
        (self.folder / "status").write_bytes(content)
        return gradsieve.read_status(str(self.folder / "gradsieved.sock"))

    def test_the_newer_copy_is_read(self):
        self.assertEqual(self.read(page([(4, document(1)), (6, document(2))])), {"number": 2})
        self.assertEqual(self.read(page([(8, document(3)), (6, document(2))])), {"number": 3})

    def test_a_copy_that_is_being_written_is_left_out(self):
        self.assertEqual(self.read(page([(4, document(1)), (7, b'{"numb')])), {"number": 1})

    def test_a_copy_that_makes_no_sense_is_left_out(self):
        self.assertEqual(self.read(page([(4, document(1)), (6, b'{"numb')])), {"number": 1})

    def test_two_unreadable_copies_are_corrupt(self):
        with self.assertRaisesRegex(gradsieve.Corrupt, "both copies are being written: allowed is one whole .*; look again"):
            self.read(page([(5, b""), (7, b"")]))

    def test_another_file_is_corrupt(self):
        with self.assertRaisesRegex(gradsieve.Corrupt, "allowed is a status page of gradsieved; name its socket"):
            self.read(page([(4, b"{}"), (6, b"{}")], magic=b"ELFELFEL"))

    def test_a_page_that_is_cut_off_is_corrupt(self):
        for byte_count in (0, 47, 5000 - 700):
            with self.subTest(byte_count=byte_count), self.assertRaises(gradsieve.Corrupt):
                self.read(page([(4, document(1)), (6, document(2))])[:byte_count])

    def test_another_version_names_both(self):
        with self.assertRaisesRegex(gradsieve.VersionMismatch, "of version 9: allowed is 1; install matching"):
            self.read(page([(4, b"{}"), (6, b"{}")], version=9))

    def test_no_page_says_where_it_was_looked_for(self):
        with self.assertRaisesRegex(gradsieve.NotFound, f"{self.folder}/status: allowed is .*; start gradsieved"):
            gradsieve.read_status(str(self.folder / "gradsieved.sock"))

    def test_the_environment_names_the_socket(self):
        (self.folder / "status").write_bytes(page([(4, document(1)), (6, document(2))]))
        os.environ["GRADSIEVE_SOCKET"] = str(self.folder / "gradsieved.sock")
        self.addCleanup(os.environ.pop, "GRADSIEVE_SOCKET")
        self.assertEqual(gradsieve.read_status(), {"number": 2})


if __name__ == "__main__":
    unittest.main()
