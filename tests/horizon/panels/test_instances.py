# SPDX-License-Identifier: Apache-2.0
"""The panel of instances."""

from django.urls import reverse

from tests.horizon.panels.base import CURVE, EVIL, INSTANCE, MINE, WHY, Panels

INDEX = reverse("horizon:admin:vcache_instances:index")
DETAIL = reverse("horizon:admin:vcache_instances:detail", args=[MINE])


class Index(Panels):
    """The list."""

    def test_figures_and_cause(self) -> None:
        self.api("/v1/instances", {"instances": [INSTANCE], "links": []})
        page = self.page(INDEX)
        for text in (DETAIL, "/admin/vcache_hosts/n1/", "vda: 5", "87.5 %", "0.3 ms", "0.9 ms",
                     "1.0\xa0GB", "256.0\xa0MB", "Writeback", "vcache-label-danger",
                     "Another instance has much more load than usual."):
            self.has(page, text)

    def test_pages(self) -> None:
        many = [{**INSTANCE, "uuid": f"{number:08x}{MINE[8:]}"} for number in range(21)]
        asked = self.api("/v1/instances", {"instances": many, "links": []})
        page = self.page(INDEX)
        self.has(page, f"marker={many[19]['uuid']}")
        self.lacks(page, many[20]["uuid"])
        self.assertIn("limit=21", asked.last_request.query)
        self.page(INDEX, data={"marker": MINE})
        self.assertIn(f"marker={MINE}", asked.last_request.query)

    def test_vcache_api_selects(self) -> None:
        asked = self.api("/v1/instances", {"instances": [], "links": []})
        for field, value in (("slo_state", "missed"), ("mode", "none"), ("host", "n1")):
            self.client.post(INDEX, {"vcache_instances__filter__q_field": field,
                                     "vcache_instances__filter__q": value}, follow=True)
            self.assertIn(f"{field}={value}", asked.last_request.query)

    def test_a_value_that_is_none(self) -> None:
        self.fails("/v1/instances", 400, "'x' is not allowed, must be one of met, missed")
        response = self.client.post(INDEX, {
            "vcache_instances__filter__q_field": "slo_state",
            "vcache_instances__filter__q": "x"}, follow=True)
        self.assertIn("Unable to retrieve the instances", self.said(response)[0])

    def test_texts_are_no_markup(self) -> None:
        one = {**INSTANCE["objectives"][0], "cause": EVIL}
        self.api("/v1/instances", {"instances": [{
            **INSTANCE, "host": EVIL, "objectives": [one], "specs": {"mode": EVIL},
            "disks": [{**INSTANCE["disks"][0], "disk": EVIL}]}], "links": []})
        self.lacks(self.page(INDEX), EVIL)


class Detail(Panels):
    """The page of one instance."""

    def setUp(self) -> None:
        super().setUp()
        self.api(f"/v1/instances/{MINE}", {"instance": INSTANCE})

    def test_overview(self) -> None:
        page = self.page(DETAIL)
        for text in ("Another instance has much more load than usual.",
                     "from tag 8 on device 254:3", "its note", "vcache:weight",
                     "0.9 ms measured, 0.5 ms promised", "Not measured",
                     'class="vcache-missed" x="0" y="0" width="90.0"'):
            self.has(page, text)

    def test_curves_are_drawn_and_listed(self) -> None:
        self.api(f"/v1/instances/{MINE}/curves", {"curves": [CURVE]})
        page = self.page(DETAIL, data={"tab": "vcache_instance__curves"})
        self.has(page, 'points="0,0.0 240,150.0 480,180.0"')
        self.has(page, 'class="vcache-share" x1="240.0"')
        self.has(page, "a cache misses 25.0 % of the reads")
        self.has(page, "<td>25.0 %</td><td>-</td>")
        self.lacks(page, "vcache-line-write")
        self.has(page, 'role="img" aria-labelledby="plot-1"')

    def test_no_curves(self) -> None:
        self.api(f"/v1/instances/{MINE}/curves", {"curves": []})
        self.assertIn("No disk of the instance has cached data.", self.page(
            DETAIL, data={"tab": "vcache_instance__curves"}))
        self.fails(f"/v1/instances/{MINE}/curves", 503, "the agent is older")
        self.assertIn("Unable to retrieve the miss-ratio curves.", self.page(
            DETAIL, data={"tab": "vcache_instance__curves"}))

    def test_decisions(self) -> None:
        self.api(f"/v1/instances/{MINE}/why", {"disks": [WHY]})
        page = self.page(DETAIL, data={"tab": "vcache_instance__why"})
        for text in ("an operator set weight 7", "share 1.0\xa0GB", "a note", "Disk vda, tag 5"):
            self.has(page, text)

    def test_one_that_is_not_there(self) -> None:
        self.fails(f"/v1/instances/{MINE}", 404, "Instance could not be found.")
        self.api("/v1/instances", {"instances": [], "links": []})
        response = self.client.get(DETAIL, follow=True)
        self.assertEqual(response.redirect_chain, [(INDEX, 302)])


class Older(Panels):
    """An API without figures and curves."""

    newest = "1.1"

    def test_what_it_lacks_is_not_shown(self) -> None:
        old = {name: value for name, value in INSTANCE.items()
               if name not in ("slo_state", "objectives", "hit_ratio", "flush_p50_us",
                               "flush_p99_us")}
        self.api(f"/v1/instances/{MINE}", {"instance": old})
        page = self.page(DETAIL)
        self.has(page, "Missed")
        self.lacks(page, "Objectives</caption>")
        page = self.page(DETAIL, data={"tab": "vcache_instance__curves"})
        self.has(page, "Unable to retrieve the miss-ratio curves.")
