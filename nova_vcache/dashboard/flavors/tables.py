# SPDX-License-Identifier: Apache-2.0
"""The table of flavors."""

from typing import Any

from django.template.loader import render_to_string
from django.utils.translation import gettext_lazy as _
from horizon import tables

from nova_vcache.dashboard.flavors import specs


class Edit(tables.LinkAction):
    """Open the form."""

    name = "edit"
    verbose_name = _("Edit Cache")
    url = "horizon:admin:vcache_flavors:edit"
    classes = ("ajax-modal",)
    icon = "pencil"
    policy_rules = (("compute", "os_compute_api:os-flavor-extra-specs:create"),)


def _keys(flavor: Any) -> Any:
    found = {key: value for key, value in sorted(flavor.extra_specs.items())
             if specs.is_ours(key)}
    return render_to_string("vcache/_lines.html", {
        "lines": [f"{key} = {value}" for key, value in found.items()]})


def _problems(flavor: Any) -> Any:
    return render_to_string("vcache/_lines.html", {"lines": specs.problems(flavor.extra_specs)})


class FlavorsTable(tables.DataTable):
    """All flavors."""

    name = tables.WrappingColumn("name", verbose_name=_("Flavor"))
    keys = tables.Column(_keys, verbose_name=_("Cache and Placement Keys"))
    problems = tables.Column(_problems, verbose_name=_("Problems"))

    class Meta:
        """Options of the table."""

        name = "vcache_flavors"
        verbose_name = _("Cache Flavors")
        table_actions = (tables.NameFilterAction,)
        row_actions = (Edit,)
        multi_select = False
