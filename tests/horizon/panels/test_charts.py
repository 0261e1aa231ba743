# SPDX-License-Identifier: Apache-2.0
"""Coordinates of the charts."""

from unittest import TestCase

from nova_vcache.dashboard import charts
from tests.horizon.panels.base import CURVE, GIB


class Curves(TestCase):
    """Plots."""

    def test_a_share_beyond_the_footprint_is_not_drawn(self) -> None:
        plot = charts.curve({**CURVE, "share_bytes": 3 * GIB})
        self.assertIsNone(plot.share)
        self.assertEqual(plot.here, 10.0, "the last point holds beyond the end")

    def test_a_share_between_two_points(self) -> None:
        plot = charts.curve({**CURVE, "share_bytes": GIB + 5})
        self.assertEqual((plot.share, plot.here), (240.0, 25.0))

    def test_a_curve_without_points_or_accesses(self) -> None:
        plot = charts.curve({"disk": "vda", "points": []})
        self.assertEqual((plot.lines, plot.share, plot.here, plot.rows), ((), None, None, ()))
        nothing = {"size_bytes": 0, "read_miss_ratio": None, "write_miss_ratio": None}
        self.assertEqual(charts.curve({"disk": "vda", "points": [nothing]}).lines, ())

    def test_axes(self) -> None:
        plot = charts.curve(CURVE)
        self.assertEqual([label.value for label in plot.up], [0, 25, 50, 75, 100])
        self.assertEqual([label.value / GIB for label in plot.across], [0, 0.5, 1, 1.5, 2])
        self.assertEqual((plot.up[0].at, plot.up[-1].at), (charts.HEIGHT, 0))

    def test_the_table_of_a_long_curve_is_short(self) -> None:
        points = [{**CURVE["points"][0], "size_bytes": step} for step in range(65)]
        self.assertLessEqual(len(charts.curve({**CURVE, "points": points}).rows), 9)


class Bars(TestCase):
    """Bars."""

    def test_parts_never_exceed_the_whole(self) -> None:
        found = charts.bars(100, (("a", 60), ("b", 70), ("c", 10)))
        self.assertEqual([(bar.at, bar.width) for bar in found], [(0, 60), (60, 40), (100, 0)])
        self.assertEqual([bar.width for bar in charts.bars(0, (("a", 5),))], [0])

    def test_more_dirty_than_used(self) -> None:
        found = charts.pool({"size_bytes": 10, "used_bytes": 2, "dirty_bytes": 3,
                             "free_bytes": 7})
        self.assertEqual([bar.width for bar in found], [30, 0, 70])

    def test_lanes(self) -> None:
        found = charts.lane({"size_bytes": 20, "free_bytes": 5})
        self.assertEqual([(bar.kind, bar.width) for bar in found], [("clean", 75), ("free", 25)])
        unknown = charts.lane({"size_bytes": 50, "free_bytes": None})
        self.assertEqual([(bar.kind, bar.width) for bar in unknown], [("unknown", 100)])

    def test_objectives(self) -> None:
        for measured, end in ((None, None), (5, 50), (2.5, 25), (100, 100)):
            self.assertEqual(charts.objective({"measured": measured, "promised": 5}), (end, 50))
