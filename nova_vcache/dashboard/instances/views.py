# SPDX-License-Identifier: Apache-2.0
"""The list of instances, and the page of one."""

from functools import cached_property
from typing import Any

from django.http import HttpRequest
from django.urls import reverse
from django.utils.translation import gettext_lazy as _
from horizon import exceptions, tables, tabs
from horizon.utils import functions

from nova_vcache.dashboard import api
from nova_vcache.dashboard.instances.tables import AllInstancesTable
from nova_vcache.dashboard.instances.tabs import InstanceTabs

Json = dict[str, Any]

_INDEX = "horizon:admin:vcache_instances:index"


class IndexView(tables.DataTableView):
    """Instances of all projects, in pages."""

    table_class = AllInstancesTable
    page_title = _("Cached Instances")
    _more = False

    def has_more_data(self, _table: tables.DataTable) -> bool:
        """Return True if there is another page."""
        return self._more

    def get_data(self) -> list[Json]:
        """Return the instances of the page."""
        size = functions.get_page_size(self.request)
        marker = self.request.GET.get(AllInstancesTable._meta.pagination_param)
        try:
            # One more, to know whether there is another page.
            found = api.instances(self.request, size + 1, marker, **self.get_filters())
        except Exception:
            exceptions.handle(self.request, _("Unable to retrieve the instances."))
            return []
        self._more = len(found) > size
        return found[:size]


class DetailView(tabs.TabView):
    """One instance."""

    tab_group_class = InstanceTabs
    template_name = "horizon/common/_detail.html"
    page_title = "{{ instance.uuid }}"

    @cached_property
    def instance(self) -> Json:
        """The instance; a failure leads back to the list."""
        try:
            return api.instance(self.request, str(self.kwargs["uuid"]))
        except Exception:
            exceptions.handle(self.request, _("Unable to retrieve the instance."),
                              redirect=reverse(_INDEX))
            raise

    def get_tabs(self, request: HttpRequest, **kwargs: Any) -> tabs.TabGroup:
        """Return the tabs."""
        return super().get_tabs(request, **{**kwargs, "instance": self.instance})

    def get_context_data(self, **kwargs: Any) -> Json:
        """Return the values of the template."""
        return {**super().get_context_data(**kwargs), "instance": self.instance,
                "url": reverse(_INDEX)}
