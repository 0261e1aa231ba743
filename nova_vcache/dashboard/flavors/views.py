# SPDX-License-Identifier: Apache-2.0
"""The list of flavors, and the form of one."""

from typing import Any

from django.urls import reverse, reverse_lazy
from django.utils.translation import gettext_lazy as _
from horizon import exceptions, forms, tables
from openstack_dashboard.api import nova

from nova_vcache.dashboard.flavors.forms import EditFlavor, initial
from nova_vcache.dashboard.flavors.tables import FlavorsTable

_INDEX = "horizon:admin:vcache_flavors:index"


class IndexView(tables.DataTableView):
    """All flavors, with those that are not public."""

    table_class = FlavorsTable
    page_title = _("Cache Flavors")

    def get_data(self) -> list[Any]:
        """Return the flavors."""
        try:
            found = nova.flavor_list(self.request, None, get_extras=True)
        except Exception:
            exceptions.handle(self.request, _("Unable to retrieve the flavors."))
            return []
        return sorted(found, key=lambda flavor: str(flavor.name).lower())


class EditView(forms.ModalFormView):
    """The form of a flavor."""

    form_class = EditFlavor
    form_id = "edit_vcache_flavor"
    template_name = "vcache/flavor_edit.html"
    modal_header = page_title = _("Edit Cache of Flavor")
    submit_label = _("Save")
    success_url = reverse_lazy(_INDEX)

    def get_initial(self) -> dict[str, Any]:
        """Return the values of the flavor."""
        try:
            return initial(self.request, self.kwargs["id"])
        except Exception:
            exceptions.handle(self.request, _("Unable to retrieve the flavor."),
                              redirect=reverse(_INDEX))
            raise

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the values of the template."""
        return {**super().get_context_data(**kwargs), "submit_url": reverse(
            "horizon:admin:vcache_flavors:edit", args=[self.kwargs["id"]])}
