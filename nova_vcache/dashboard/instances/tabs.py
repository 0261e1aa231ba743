# SPDX-License-Identifier: Apache-2.0
"""The tabs of an instance for administrators; those of a project are in ../instance_tab.py."""

from typing import Any

from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _
from horizon import exceptions, tabs
from openstack_dashboard import policy

from nova_vcache.dashboard import api, charts, figures

Json = dict[str, Any]


class OverviewTab(tabs.Tab):
    """Figures, objectives and disks."""

    name = _("Overview")
    slug = "overview"
    template_name = "vcache/_instance_overview.html"

    def get_context_data(self, _request: HttpRequest) -> Json:
        """Return the values of the template."""
        return figures.context(self.tab_group.kwargs["instance"], own=False)


class CurvesTab(tabs.Tab):
    """Miss-ratio curves."""

    name = _("Miss-Ratio Curves")
    slug = "curves"
    template_name = "vcache/_curves.html"
    preload = False

    def get_context_data(self, request: HttpRequest) -> Json:
        """Return the values of the template."""
        return {"plots": plots(request, self.tab_group.kwargs["instance"]["uuid"])}


class WhyTab(tabs.Tab):
    """Decisions and their reasons."""

    name = _("Decisions")
    slug = "why"
    template_name = "vcache/_why.html"
    preload = False

    def allowed(self, request: HttpRequest) -> bool:
        """Return True if the user may see reasons."""
        return bool(policy.check((("vcache", "vcache:instances:why"),), request))

    def get_context_data(self, request: HttpRequest) -> Json:
        """Return the values of the template."""
        try:
            disks = api.reasons(request, self.tab_group.kwargs["instance"]["uuid"])
        except Exception:
            exceptions.handle(request, _("Unable to retrieve the decisions."))
            disks = []
        return {"disks": [figures.explained(disk) for disk in disks]}


def plots(request: HttpRequest, uuid: str) -> list[charts.Plot]:
    """Return the curves of an instance; a failure is shown to the user."""
    try:
        return [charts.curve(item) for item in api.curves(request, uuid)]
    except Exception:
        exceptions.handle(request, _("Unable to retrieve the miss-ratio curves."))
        return []


class InstanceTabs(tabs.TabGroup):
    """All tabs."""

    slug = "vcache_instance"
    tabs = (OverviewTab, CurvesTab, WhyTab)
    sticky = True
