# SPDX-License-Identifier: Apache-2.0
"""The panel of hosts."""

from django.urls import reverse

from tests.horizon.panels.base import EVIL, GIB, HOST, INSTANCE, MINE, POOL, Panels

INDEX = reverse("horizon:admin:vcache_hosts:index")
DETAIL = reverse("horizon:admin:vcache_hosts:detail", args=["n1"])
DRAIN = {"left_bytes": GIB, "total_bytes": 2 * GIB, "percent": 50, "done": False}


class Index(Panels):
    """The list."""

    def test_it_asks_with_the_token_and_the_newest_microversion(self) -> None:
        asked = self.api("/v1/hosts", {"hosts": [HOST], "links": []})
        page = self.page(INDEX)
        self.assertIn(DETAIL, page)
        self.has(page, "1 of 3 missed")
        # Horizon asks for a confirmation.
        self.assertRegex(page, r'class="[^"]*btn-danger[^"]*"[^>]*value="vcache_hosts__drain__n1"'
                         r'|value="vcache_hosts__drain__n1"[^>]*class="[^"]*btn-danger')
        self.has(page, "8.0\xa0GB of 9.0\xa0GB free")
        headers = asked.last_request.headers
        self.assertEqual(headers["X-Auth-Token"], self.token.id)
        self.assertEqual(headers["OpenStack-API-Version"], "vcache 1.2")

    def test_the_progress_of_a_drain_can_be_read_by_everybody(self) -> None:
        self.api("/v1/hosts", {"hosts": [{**HOST, "draining": True, "drain": DRAIN}], "links": []})
        page = self.page(INDEX)
        self.has(page, 'aria-valuenow="50"')
        self.has(page, "50 %, 1.0\xa0GB left")
        self.has(page, "ajax-update warning")
        done = {**DRAIN, "left_bytes": 0, "percent": 100, "done": True}
        self.api("/v1/hosts", {"hosts": [{**HOST, "draining": True, "drain": done}], "links": []})
        page = self.page(INDEX)
        self.lacks(page, "ajax-update warning")
        self.has(page, "Drained")

    def test_a_row_that_is_requested_again(self) -> None:
        self.api("/v1/hosts/n1", {"host": {**HOST, "draining": True, "drain": DRAIN}})
        page = self.page(INDEX, data={"action": "row_update", "table": "vcache_hosts",
                                      "obj_id": "n1"},
                         headers={"x-requested-with": "XMLHttpRequest"})
        self.has(page, "50 %")

    def test_drain_and_back(self) -> None:
        for action, draining, text in (("drain", True, "Draining Host: n1"),
                                       ("undrain", False, "Stopped Draining Host: n1")):
            self.api("/v1/hosts", {"hosts": [{**HOST, "draining": not draining}], "links": []})
            asked = self.api("/v1/hosts/n1", {"host": HOST}, method="PATCH")
            response = self.client.post(INDEX, {"action": f"vcache_hosts__{action}__n1"},
                                        follow=True)
            self.assertEqual(asked.last_request.json(), {"draining": draining})
            self.assertEqual(self.said(response), [text])

    def test_a_change_that_fails(self) -> None:
        self.api("/v1/hosts", {"hosts": [HOST], "links": []})
        self.api("/v1/hosts/n1", {"errors": [{"status": 504, "title": "t", "detail": "no answer",
                                              "request_id": "r"}]}, 504, "PATCH")
        response = self.client.post(INDEX, {"action": "vcache_hosts__drain__n1"}, follow=True)
        self.assertIn("Unable to drain host: n1", self.said(response)[0])

    def test_without_vcache_api_there_is_an_empty_table(self) -> None:
        self.fails("/v1/hosts", 503, "the message bus is down")
        response = self.client.get(INDEX)
        (message,) = self.said(response)
        self.assertIn("Unable to retrieve the hosts.", message)
        self.assertIn("the message bus is down (HTTP 503, req-1)", message)
        self.assertIn("No items to display", response.content.decode())

    def test_texts_are_no_markup(self) -> None:
        self.api("/v1/hosts", {"hosts": [{**HOST, "problem": EVIL, "state": EVIL}], "links": []})
        self.lacks(self.page(INDEX), EVIL)

    def test_the_name_is_what_is_searched(self) -> None:
        self.api("/v1/hosts", {"hosts": [HOST, {**HOST, "node": "m2"}], "links": []})
        response = self.client.post(INDEX, {"vcache_hosts__filter__q": "M"}, follow=True)
        self.assertIn("/m2/", response.content.decode())
        self.assertNotIn("/n1/", response.content.decode())


class Older(Panels):
    """An API of the first microversion, without any discovery."""

    newest = None

    def test_what_it_lacks_is_not_shown(self) -> None:
        host = {name: value for name, value in HOST.items() if name != "drain"}
        asked = self.api("/v1/hosts", {"hosts": [{**host, "draining": True}], "links": []})
        page = self.page(INDEX)
        self.has(page, "Draining")
        self.assertNotIn("OpenStack-API-Version", asked.last_request.headers)
        pool = {name: value for name, value in POOL.items() if name != "lanes"}
        self.api("/v1/hosts/n1", {"host": host})
        self.api("/v1/pools", {"pools": [pool], "links": []})
        page = self.page(DETAIL, data={"tab": "vcache_host__pools"})
        self.has(page, "Pool fast")
        self.lacks(page, "Lanes</caption>")


class Detail(Panels):
    """The page of one host."""

    def setUp(self) -> None:
        super().setUp()
        self.api("/v1/hosts/n1", {"host": HOST})
        self.pools = self.api("/v1/pools", {"pools": [POOL], "links": []})

    def test_pools_and_lanes(self) -> None:
        page = self.page(DETAIL)
        self.assertEqual(self.pools.last_request.query, "host=n1")
        self.has(page, 'aria-label="4.0\xa0GB of 10.0\xa0GB used, of which 1.0\xa0GB dirty; '
                      '6.0\xa0GB free"')
        self.has(page, 'class="vcache-dirty" x="0.00" y="0" width="10.00"')
        self.has(page, 'class="vcache-clean" x="10.00" y="0" width="30.00"')
        self.has(page, f"Only for <a href=\"/admin/vcache_instances/{MINE}/\">")
        self.has(page, "1 of 3 disks miss an objective")

    def test_its_instances(self) -> None:
        asked = self.api("/v1/instances", {"instances": [INSTANCE], "links": []})
        page = self.page(DETAIL, data={"tab": "vcache_host__instances"})
        self.assertIn(MINE, page)
        self.assertIn("host=n1", asked.last_request.query)
        self.assertIn("all_projects=true", asked.last_request.query)

    def test_one_that_is_not_there(self) -> None:
        self.fails("/v1/hosts/n1", 404, "Host 'n1' could not be found.")
        self.api("/v1/hosts", {"hosts": [], "links": []})
        response = self.client.get(DETAIL, follow=True)
        self.assertEqual(response.redirect_chain, [(INDEX, 302)])
