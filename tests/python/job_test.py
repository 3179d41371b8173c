#!/usr/bin/env python3
"""The Job API against real daemons: averages with the same bits on every rank, views and their lifetime, refused values."""
import array
import gc
import os
import time
import unittest
import unittest.mock

import gradsieve
from job_ranks import SHAPES, elements_of, flat, floats, value
from python_cluster import Cluster


class AveragesTest(unittest.TestCase):
    def check(self, results, world, steps):
        self.assertEqual({result["digest"] for result in results}, {results[0]["digest"]})
        self.assertEqual([result["rank"] for result in results], list(range(world)))
        for step in range(1, steps + 1):
            for name, shape in SHAPES.items():
                wanted = [sum(value(rank, step, i) for rank in range(world)) / world for i in range(elements_of(shape))]
                self.assertEqual(results[0]["seen"][f"{name} {step}"], wanted)

    def test_one_node_two_ranks_average_exactly(self):
        with Cluster() as cluster:
            self.check(cluster.run_ranks("job_ranks:averages", 2, steps=3), 2, 3)

    def test_two_nodes_four_ranks_average_exactly(self):
        with Cluster(2) as cluster:
            self.check(cluster.run_ranks("job_ranks:averages", 4, steps=3), 4, 3)

    def test_compressed_averages_have_the_same_bits_on_every_rank(self):
        with Cluster(2) as cluster:
            results = cluster.run_ranks("job_ranks:averages", 4, steps=6, codec="topk(0.05) | pow2(bits=4) | auto")
        self.assertEqual({result["digest"] for result in results}, {results[0]["digest"]})
        self.assertGreater(sum(map(abs, results[0]["seen"]["weight 6"])), 0)

    def test_without_numpy_views_are_memoryviews(self):
        with Cluster() as cluster:
            results = cluster.run_ranks("job_ranks:averages", 2, steps=2, without_numpy=True)
        self.check(results, 2, 2)
        self.assertEqual(results[0]["type"], "memoryview")

    def test_broadcast_copies_the_roots_values_and_a_mismatch_is_named(self):
        with Cluster(2) as cluster:
            for parameters, text in cluster.run_ranks("job_ranks:broadcasts", 2):
                self.assertEqual(parameters, [1.5, 1.5, 1.5])
                self.assertIn("mismatch: ", text)

    def test_a_nan_fails_the_step_on_every_rank_and_the_next_one_holds(self):
        with Cluster(2) as cluster:
            for text, average in cluster.run_ranks("job_ranks:non_finite", 2):
                self.assertIn("weight", text)
                self.assertEqual(average, [2.0, 2.0, 2.0])


    def test_a_job_that_is_left_is_started_again_at_once(self):
        with Cluster(2) as cluster:
            for seen in cluster.run_ranks("job_ranks:leaves_and_comes_again", 2, rounds=20):
                self.assertEqual(seen, [[1, [1.5] * 3]] * 20)


class LocalJobTest(unittest.TestCase):
    """A job of one rank in this process."""

    def setUp(self):
        self.cluster = Cluster()
        self.addCleanup(self.cluster.close)
        self.job = gradsieve.Job("local", 0, 1, codec="all | f32", socket_path=self.cluster.socket())
        self.addCleanup(gc.collect)
        self.weight = self.job.add_tensor("weight", (2, 3))

    def step(self, number, values):
        self.weight.submit(number, values)
        return flat(self.weight.wait(30))

    def test_gradient_before_start_says_what_to_do(self):
        with self.assertRaisesRegex(gradsieve.FailedPrecondition, "is not started: allowed after start .*; call start"):
            self.weight.gradient

    def test_views_after_detach_stay_memory_and_new_ones_are_refused(self):
        self.job.start(30)
        view = self.weight.gradient
        self.weight.submit(1)
        result = self.weight.wait(30)
        self.job.detach(30)
        with self.assertRaisesRegex(gradsieve.FailedPrecondition, "weight.*was left with detach: allowed .*; copy"):
            self.weight.gradient
        with self.assertRaises(gradsieve.FailedPrecondition):
            self.weight.write(bytes(24))
        with self.assertRaises(gradsieve.GradsieveError):
            self.weight.submit(2)
        del self.job, self.weight
        gc.collect()
        memoryview(view).cast("B")[:] = bytes(24)  # mapped as long as a view lives
        self.assertEqual(flat(view) + flat(result), [0.0] * 12)

    def test_a_result_cannot_be_written(self):
        self.job.start(30)
        self.weight.submit(1)
        result = self.weight.wait(30)
        self.assertTrue(memoryview(result).readonly)

    def test_the_gradient_is_shared_memory_in_the_tensors_shape(self):
        self.job.start(30)
        self.assertEqual(memoryview(self.weight.gradient).shape, (2, 3))
        memoryview(self.weight.gradient).cast("B").cast("f")[:] = floats([1, 2, 3, 4, 5, 6])
        self.assertEqual(flat(self.weight.gradient), [1, 2, 3, 4, 5, 6])

    def test_a_wrong_shape_is_refused_with_both_shapes(self):
        self.job.start(30)
        with self.assertRaisesRegex(gradsieve.InvalidArgument, r"weight.*shape \(6,\): allowed is \(2, 3\).*; reshape"):
            self.weight.write(floats([0] * 6))

    def test_a_wrong_type_is_refused_by_name(self):
        self.job.start(30)
        with self.assertRaisesRegex(gradsieve.InvalidArgument, "buffer format 'd': allowed are float32"):
            self.weight.write(memoryview(array.array("d", [0] * 6)).cast("B").cast("d", (2, 3)))
        with self.assertRaisesRegex(gradsieve.InvalidArgument, "list given: allowed is a numpy array"):
            self.weight.write([1, 2, 3])
        other = gradsieve.Job("dtype", 0, 1)
        with self.assertRaisesRegex(gradsieve.InvalidArgument, "dtype is 'float64': allowed is float32"):
            other.add_tensor("weight", (2,), "float64")

    def test_submit_with_values_while_the_step_is_open_is_busy(self):
        second = gradsieve.Job("open", 0, 2, socket_path=self.cluster.socket())
        self.assertEqual(second.world_size, 2)
        bias = self.job.add_tensor("bias", (1,))
        self.job.start(30)
        self.weight.submit(1, memoryview(bytes(24)).cast("f", (2, 3)))
        with self.assertRaisesRegex(gradsieve.Busy, "weight"):
            self.weight.submit(2)
        bias.submit(1)
        self.weight.wait(30)

    def test_a_wrong_step_names_the_next_one(self):
        self.job.start(30)
        with self.assertRaisesRegex(gradsieve.InvalidArgument, "1"):
            self.weight.submit(5)

    def test_status_tells_of_this_job_alone(self):
        self.job.start(30)
        step, deadline = self.job.first_step(), time.monotonic() + 30
        while time.monotonic() < deadline and not gradsieve.read_status(self.cluster.socket())["jobs"]:
            self.step(step, None)  # the page is published beside the job's steps
            step += 1
        entry = self.job.status()
        self.assertEqual((entry["name"], entry["world_size"], entry["codec_origin"]), ("local", 1, "client"))

    def test_status_tells_runs_of_one_name_apart(self):
        entries = [{"name": "x", "run_id": "one"}, {"name": "x", "run_id": "two"}]
        with unittest.mock.patch("gradsieve.job.read_status", return_value={"jobs": entries}):
            self.assertEqual(gradsieve.Job("x", 0, 1, run_id="two").status()["run_id"], "two")
            with self.assertRaisesRegex(gradsieve.NotFound, r"job 'x' \(run 'three'\) is not among the 2 jobs .*runs of that name: "
                                                            "'one', 'two'.*; call start"):
                gradsieve.Job("x", 0, 1, run_id="three").status()

    def test_a_run_id_is_found_as_the_library_finds_it(self):
        names = ("GRADSIEVE_RUN_ID", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID")
        for given, variables, wanted in ((None, ("", "", ""), "default"), (None, ("", "elastic", "17"), "elastic"),
                                         (None, ("own", "elastic", "17"), "own"), ("", ("", "", "17"), "17"),
                                         ("given", ("own", "", ""), "given")):
            with self.subTest(wanted=wanted), unittest.mock.patch.dict(os.environ, dict(zip(names, variables))):
                job = gradsieve.Job("run", 0, 1, run_id=given)
                self.assertEqual(job.run_id, wanted)
                with self.assertRaisesRegex(gradsieve.FailedPrecondition, f"run '{wanted}'"):  # the library's own words
                    job.start(0.1)

    def test_a_forked_child_has_dead_handles(self):
        self.job.start(30)
        child = os.fork()
        if child == 0:
            try:
                self.weight.gradient
            except gradsieve.FailedPrecondition:
                os._exit(7)
            os._exit(1)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 7)
        self.assertEqual(self.step(1, memoryview(bytes(24)).cast("f", (2, 3))), [0.0] * 6)  # the parent's are alive

    def test_the_context_manager_leaves_the_job(self):
        with self.job as job:
            job.start(30)
        with self.assertRaises(gradsieve.FailedPrecondition):
            self.weight.gradient


if __name__ == "__main__":
    unittest.main()
