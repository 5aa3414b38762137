#!/usr/bin/env python3
"""That the judge of the crash tests can tell right from wrong."""

import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from expectations import World  # noqa: E402


class Expectations(unittest.TestCase):
    def setUp(self):
        self.world = World()
        self.tag = self.world.cell("tag", "r", "latest")
        self.blob = self.world.cell("blob", "r", "sha256:x")

    def begin(self, cell, value):
        op = self.world.op("op", {cell: value})
        op.begin()
        return op

    def acknowledged(self, cell, value):
        self.begin(cell, value).acknowledge()

    def test_nothing_happened(self):
        self.assertEqual(self.blob.possible(), {False})

    def test_one_that_was_not_begun_has_no_effect(self):
        self.world.op("op", {self.blob: True})
        self.assertEqual(self.blob.possible(), {False})

    def test_in_flight_may_be_or_not(self):
        self.begin(self.blob, True)
        self.assertEqual(self.blob.possible(), {False, True})

    def test_acknowledged_must_be(self):
        self.acknowledged(self.blob, True)
        self.assertEqual(self.blob.possible(), {True})
        self.assertEqual(len(self.world.settle({self.blob: False})), 1)

    def test_refused_is_nothing(self):
        self.begin(self.blob, True).refuse()
        self.assertEqual(self.blob.possible(), {False})

    def test_a_delete_in_flight_behind_a_push(self):
        self.acknowledged(self.blob, True)
        self.begin(self.blob, False)
        self.assertEqual(self.blob.possible(), {False, True})

    def test_an_older_value_is_gone(self):
        for value in "abc":
            self.acknowledged(self.tag, value)
        self.assertEqual(self.tag.possible(), {"c"})

    def test_overlapping_ones_come_in_any_order(self):
        a, b = self.begin(self.tag, "a"), self.begin(self.tag, "b")
        b.acknowledge()
        a.acknowledge()
        self.assertEqual(self.tag.possible(), {"a", "b"})
        self.acknowledged(self.tag, "c")
        self.assertEqual(self.tag.possible(), {"c"})

    def test_in_flight_since_long_ago_may_come_last(self):
        self.begin(self.tag, "a")
        self.acknowledged(self.tag, "b")
        self.assertEqual(self.tag.possible(), {"a", "b"})

    def two_cells(self):
        manifest = self.world.cell("manifest", "r", "sha256:m")
        op = self.world.op("push", {manifest: True, self.tag: "sha256:m"})
        op.begin()
        return manifest

    def test_one_operation_in_part(self):
        manifest = self.two_cells()
        wrong = self.world.settle({manifest: True, self.tag: None})
        self.assertEqual(len(wrong), 1)
        self.assertIn("in part", wrong[0])

    def test_one_operation_as_a_whole(self):
        for there, tag in ((True, "sha256:m"), (False, None)):
            self.setUp()
            manifest = self.two_cells()
            self.assertEqual(self.world.settle({manifest: there, self.tag: tag}), [])
            self.assertEqual(manifest.now, there)

    def test_in_part_is_seen_behind_an_earlier_change(self):
        self.acknowledged(self.tag, "sha256:old")
        manifest = self.two_cells()
        self.assertEqual(len(self.world.settle({manifest: True, self.tag: "sha256:old"})), 1)

    def test_what_another_may_have_replaced_says_nothing(self):
        manifest = self.two_cells()
        self.begin(self.tag, "sha256:other")
        self.assertEqual(self.world.settle({manifest: True, self.tag: "sha256:other"}), [])


if __name__ == "__main__":
    unittest.main()
