# SPDX-License-Identifier: Apache-2.0
"""The list of hosts, and the page of one."""

from functools import cached_property
from typing import Any

from django.http import HttpRequest
from django.urls import reverse
from django.utils.translation import gettext_lazy as _
from horizon import exceptions, tables, tabs

from nova_vcache.dashboard import api
from nova_vcache.dashboard.hosts.tables import HostsTable
from nova_vcache.dashboard.hosts.tabs import HostTabs

Json = dict[str, Any]


class IndexView(tables.DataTableView):
    """All hosts."""

    table_class = HostsTable
    page_title = _("Cache Hosts")

    def get_data(self) -> list[Json]:
        """Return the hosts."""
        try:
            return api.hosts(self.request)
        except Exception:
            exceptions.handle(self.request, _("Unable to retrieve the hosts."))
            return []


class DetailView(tabs.TabbedTableView):
    """One host."""

    tab_group_class = HostTabs
    template_name = "horizon/common/_detail.html"
    page_title = "{{ host.node }}"

    @cached_property
    def host(self) -> Json:
        """The host; a failure leads back to the list."""
        try:
            return api.host(self.request, self.kwargs["node"])
        except Exception:
            exceptions.handle(self.request, _("Unable to retrieve the host."),
                              redirect=reverse("horizon:admin:vcache_hosts:index"))
            raise

    def get_tabs(self, request: HttpRequest, **kwargs: Any) -> tabs.TabGroup:
        """Return the tabs."""
        return super().get_tabs(request, **{**kwargs, "host": self.host})

    def get_context_data(self, **kwargs: Any) -> Json:
        """Return the values of the template."""
        return {**super().get_context_data(**kwargs), "host": self.host,
                "url": reverse("horizon:admin:vcache_hosts:index")}
