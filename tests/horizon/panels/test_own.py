# SPDX-License-Identifier: Apache-2.0
"""The tab on the page of an instance, and who sees what."""

from types import SimpleNamespace

import yaml
from django.core.management import call_command
from django.template.loader import render_to_string
from django.urls import reverse
from openstack_dashboard.api import neutron
from openstack_dashboard.dashboards.project.instances.tabs import InstanceDetailTabs
from openstack_dashboard.test import helpers

import nova_vcache.dashboard
from nova_vcache.dashboard.instance_tab import VCacheTab
from tests.horizon.panels.base import CURVE, INSTANCE, MINE, Edge, Panels

PANELS = [f"horizon:admin:vcache_{name}:index" for name in ("hosts", "instances", "flavors")]


class Tab(Edge):
    """The tab."""

    project = "1"

    def setUp(self) -> None:
        super().setUp()
        # Another tab asks whether it is allowed.
        patch = helpers.mock.patch.object(neutron, "is_extension_supported", return_value=False)
        patch.start()
        self.addCleanup(patch.stop)
        self.request = self.factory.get("/")  # with messages
        self.group = InstanceDetailTabs(self.request, instance=SimpleNamespace(
            id=MINE, tenant_id=self.project))

    def tab(self) -> VCacheTab:
        return VCacheTab(self.group, self.request)

    def test_horizon_adds_it(self) -> None:
        self.assertIn("vcache", [tab.slug for tab in self.group.get_tabs()])

    def test_it_has_only_what_concerns_the_project(self) -> None:
        # As an administrator gets it, who looks at the page of the project.
        self.api(f"/v1/instances/{MINE}", {"instance": INSTANCE})
        self.api(f"/v1/instances/{MINE}/curves", {"curves": [CURVE]})
        tab = self.tab()
        self.assertTrue(tab.allowed(self.request))
        page = render_to_string(tab.template_name, tab.get_context_data(self.request))
        self.has(page, "87.5 %", "0.9 ms", "The cause is outside of the instance.",
                 'points="0,0.0 240,150.0 480,180.0"', "Writeback")
        self.lacks(page, "n1", "tag 8", "254:", "its note", "instance-1", "Another instance",
                   "<td>5</td>", "Tag")

    def test_an_instance_without_vcache(self) -> None:
        self.fails(f"/v1/instances/{MINE}", 404, "Instance could not be found.")
        tab = self.tab()
        page = render_to_string(tab.template_name, tab.get_context_data(self.request))
        self.has(page, "The instance has no isolated cache now.")
        self.assertEqual(list(self.request._messages), [], "that is no error")

    def test_an_api_that_is_down(self) -> None:
        self.fails(f"/v1/instances/{MINE}", 503, "the message bus is down")
        tab = self.tab()
        page = render_to_string(tab.template_name, tab.get_context_data(self.request))
        self.has(page, "The instance has no isolated cache now.")
        self.assertIn("Unable to retrieve the figures", str(*self.request._messages))


class OtherProject(Tab):
    """An instance of another project."""

    project = "2"

    def test_horizon_adds_it(self) -> None:
        self.assertNotIn("vcache", [tab.slug for tab in self.group.get_tabs()])

    def test_it_has_only_what_concerns_the_project(self) -> None:
        self.assertFalse(self.tab().allowed(self.request))


class Without(Panels):
    """A cloud without vcache-api."""

    def _setup_test_data(self) -> None:
        super()._setup_test_data()
        self.service_catalog.pop()

    def test_there_are_no_panels(self) -> None:
        page = self.page(reverse("horizon:admin:vcache_flavors:index"))
        self.lacks(page, reverse(PANELS[0]), reverse(PANELS[1]))
        response = self.client.get(reverse(PANELS[0]))
        self.assertIn(response.status_code, (403, 404))


class Member(Edge):
    """Panels of administrators are not for others."""

    def test_they_are_refused(self) -> None:
        for name in PANELS:
            response = self.client.get(reverse(name))
            self.assertIn(response.status_code, (403, 404), name)


class Policy(Panels):
    """The file of default policies."""

    def test_it_is_what_vcache_api_has(self) -> None:
        import io
        import pathlib
        from contextlib import redirect_stdout

        path = pathlib.Path(nova_vcache.dashboard.__file__).parent / (
            "conf/default_policies/vcache.yaml")
        with redirect_stdout(io.StringIO()) as out:
            call_command("dump_default_policies", namespace="vcache")
        self.assertEqual(yaml.safe_load(path.read_text()), yaml.safe_load(out.getvalue()),
                         "run make dashboard-policy")
