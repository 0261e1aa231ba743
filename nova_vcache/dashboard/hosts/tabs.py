# SPDX-License-Identifier: Apache-2.0
"""The tabs of a host."""

from typing import Any

from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _
from horizon import exceptions, tabs

from nova_vcache.dashboard import api, charts, words
from nova_vcache.dashboard.instances.tables import MOST, InstancesTable

Json = dict[str, Any]


class OverviewTab(tabs.Tab):
    """State, resources and drain."""

    name = _("Overview")
    slug = "overview"
    template_name = "vcache/_host_overview.html"

    def get_context_data(self, _request: HttpRequest) -> Json:
        """Return the values of the template."""
        host = self.tab_group.kwargs["host"]
        return {"host": host, "state": words.HOST_STATES.get(host["state"], host["state"])}


class PoolsTab(tabs.Tab):
    """Pools and their lanes."""

    name = _("Pools and Lanes")
    slug = "pools"
    template_name = "vcache/_pools.html"

    def get_context_data(self, request: HttpRequest) -> Json:
        """Return the values of the template."""
        try:
            pools = api.pools(request, self.tab_group.kwargs["host"]["node"])
        except Exception:
            exceptions.handle(request, _("Unable to retrieve the pools."))
            pools = []
        return {"pools": [_drawn(pool) for pool in pools]}


def _drawn(pool: Json) -> Json:
    return {**pool, "bars": charts.pool(pool), "lanes": [
        {**lane, "bars": charts.lane(lane)} for lane in pool.get("lanes", ())]}


class InstancesTab(tabs.TableTab):
    """The instances on the host."""

    name = _("Instances")
    slug = "instances"
    table_classes = (InstancesTable,)
    template_name = "horizon/common/_detail_table.html"
    preload = False

    def get_vcache_instances_data(self) -> list[Json]:
        """Return the instances."""
        try:
            return api.instances(self.request, MOST, host=self.tab_group.kwargs["host"]["node"])
        except Exception:
            exceptions.handle(self.request, _("Unable to retrieve the instances."))
            return []


class HostTabs(tabs.TabGroup):
    """All tabs."""

    slug = "vcache_host"
    tabs = (OverviewTab, PoolsTab, InstancesTab)
    sticky = True
