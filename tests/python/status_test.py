#!/usr/bin/env python3
"""Reading status pages that are made here by the table in docs/shared-memory.md: whole, half-written, foreign, cut off."""
import json
import os
import shutil
import struct
import tempfile
import unittest
import unittest.mock
from pathlib import Path

import gradsieve

CAPACITY = 256
HEADER_BYTES, HEAD_BYTES = 4096, 64


# XXH3-64 of (document, seed), by xxhash.h; a copy that is not here has a checksum that does not hold.
CHECKSUMS = {(b'{"number": 1}', 4): 0xc539958c6a87d411, (b'{"number": 2}', 6): 0xea20625a9a5928c9,
             (b'{"number": 3}', 8): 0xb83a4c6577ee0ac7}


def page(copies, magic=b"GSVSTAT\0", version=1, capacity=CAPACITY):
    """The bytes of a page; `copies`: (sequence, document) of both."""
    header = struct.pack("<8sIIQQQQ", magic, version, 1, 0, 0, 0, capacity).ljust(HEADER_BYTES, b"\0")
    return header + b"".join(
        struct.pack("<QQQ", sequence, len(text), CHECKSUMS.get((text, sequence), 0)).ljust(HEAD_BYTES, b"\0")
        + text.ljust(CAPACITY, b"\0") for sequence, text in copies)


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

    def test_a_copy_that_was_never_written_is_left_out(self):
        self.assertEqual(self.read(page([(4, document(1)), (0, b"")])), {"number": 1})
        with self.assertRaisesRegex(gradsieve.Corrupt, "allowed is one whole"):
            self.read(page([(0, b"{}"), (0, b"{}")]))

    def test_a_capacity_beyond_any_daemons_is_corrupt_and_not_read(self):
        with self.assertRaisesRegex(gradsieve.Corrupt, "copies of 268435457 bytes: allowed are 268435456; restart gradsieved"):
            self.read(page([(4, document(1)), (6, document(2))], capacity=(256 << 20) + 1))

    def test_what_is_no_file_is_corrupt_at_once(self):
        os.mkfifo(self.folder / "status")
        with self.assertRaisesRegex(gradsieve.Corrupt, "is no regular file: allowed is a status page"):
            gradsieve.read_status(str(self.folder / "gradsieved.sock"))

    def test_two_unreadable_copies_are_corrupt(self):
        with self.assertRaisesRegex(gradsieve.Corrupt, "both copies are being written: allowed is one whole .*; look again"):
            self.read(page([(5, b""), (7, b"")]))

    def test_another_file_is_corrupt(self):
        with self.assertRaisesRegex(gradsieve.Corrupt, "allowed is a status page of gradsieved; name its socket"):
            self.read(page([(4, document(1)), (6, document(2))], magic=b"ELFELFEL"))

    def test_a_page_that_is_cut_off_is_corrupt(self):
        for byte_count in (0, 47, 5000 - 700):
            with self.subTest(byte_count=byte_count), self.assertRaises(gradsieve.Corrupt):
                self.read(page([(4, document(1)), (6, document(2))])[:byte_count])

    def test_another_version_names_both(self):
        with self.assertRaisesRegex(gradsieve.VersionMismatch, "of version 9: allowed is 1; install matching"):
            self.read(page([(4, document(1)), (6, document(2))], version=9))

    def test_no_page_says_where_it_was_looked_for(self):
        with self.assertRaisesRegex(gradsieve.NotFound, f"{self.folder}/status: allowed is .*; start gradsieved"):
            gradsieve.read_status(str(self.folder / "gradsieved.sock"))

    def test_the_environment_names_the_socket(self):
        (self.folder / "status").write_bytes(page([(4, document(1)), (6, document(2))]))
        os.environ["GRADSIEVE_SOCKET"] = str(self.folder / "gradsieved.sock")
        self.addCleanup(os.environ.pop, "GRADSIEVE_SOCKET")
        self.assertEqual(gradsieve.read_status(), {"number": 2})

    def test_the_page_beside_a_socket_comes_before_one_that_a_stopped_daemon_left(self):
        places = [self.folder / name / "gradsieved.sock" for name in ("own", "system")]
        for number, place in enumerate(places, 1):
            place.parent.mkdir()
            (place.parent / "status").write_bytes(page([(2 * number + 2, document(number)), (0, b"")]))
        with unittest.mock.patch("gradsieve.status.usual_socket_paths", return_value=[str(place) for place in places]):
            self.assertEqual(gradsieve.read_status(), {"number": 1})  # no socket: any page
            places[1].touch()
            self.assertEqual(gradsieve.read_status(), {"number": 2})
            places[0].touch()
            self.assertEqual(gradsieve.read_status(), {"number": 1})
            (places[0].parent / "status").unlink()
            with self.assertRaisesRegex(gradsieve.NotFound, "own/status"):
                gradsieve.read_status()

    def test_the_usual_places_are_the_librarys(self):
        system = "/run/gradsieve/gradsieved.sock"
        for runtime, user, wanted in (("/run/user/7", 7, ["/run/user/7/gradsieve/gradsieved.sock", system]),
                                      ("", 7, ["/run/user/7/gradsieve/gradsieved.sock", system]),
                                      ("relative", 7, ["/run/user/7/gradsieve/gradsieved.sock", system]), ("", 0, [system])):
            with self.subTest(runtime=runtime, user=user), unittest.mock.patch.dict(os.environ, XDG_RUNTIME_DIR=runtime), \
                    unittest.mock.patch("os.getuid", return_value=user):
                self.assertEqual(gradsieve.status.usual_socket_paths(), wanted)


if __name__ == "__main__":
    unittest.main()
