# SPDX-License-Identifier: Apache-2.0
"""The table of hosts, and the actions that drain them."""

from typing import Any

from django.http import HttpRequest
from django.template.defaultfilters import filesizeformat
from django.template.loader import render_to_string
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext_lazy
from horizon import tables

from nova_vcache.dashboard import api, words

Json = dict[str, Any]


class Drain(tables.BatchAction):
    """Start to drain hosts."""

    name = "drain"
    icon = "sign-out"
    # So that Horizon asks for a confirmation.
    action_type = "danger"
    policy_rules = (("vcache", "vcache:hosts:update"),)
    help_text = _("The hosts accept no more instances and write all dirty data to the origins. "
                  "Running instances continue without writeback.")

    @staticmethod
    def action_present(count: int) -> Any:
        """Return the text of the action."""
        return ngettext_lazy("Drain Host", "Drain Hosts", count)

    @staticmethod
    def action_past(count: int) -> Any:
        """Return the text of what was done."""
        return ngettext_lazy("Draining Host", "Draining Hosts", count)

    def allowed(self, _request: HttpRequest, datum: Json | None = None) -> bool:
        """Return True if a host does not drain yet."""
        return datum is None or not datum["draining"]

    def action(self, request: HttpRequest, obj_id: str) -> None:
        """Change the host."""
        api.drain(request, obj_id, draining=True)


class Undrain(tables.BatchAction):
    """Have hosts accept instances again."""

    name = "undrain"
    icon = "sign-in"
    policy_rules = (("vcache", "vcache:hosts:update"),)

    @staticmethod
    def action_present(count: int) -> Any:
        """Return the text of the action."""
        return ngettext_lazy("Stop Draining Host", "Stop Draining Hosts", count)

    @staticmethod
    def action_past(count: int) -> Any:
        """Return the text of what was done."""
        return ngettext_lazy("Stopped Draining Host", "Stopped Draining Hosts", count)

    def allowed(self, _request: HttpRequest, datum: Json | None = None) -> bool:
        """Return True if a host drains."""
        return datum is None or bool(datum["draining"])

    def action(self, request: HttpRequest, obj_id: str) -> None:
        """Change the host."""
        api.drain(request, obj_id, draining=False)


class UpdateRow(tables.Row):
    """The row of a draining host, which the page requests again and again."""

    ajax = True

    def get_data(self, request: HttpRequest, obj_id: str) -> Json:
        """Return the host."""
        return api.host(request, obj_id)


def drain_state(host: Json) -> str:
    """Return the state for the row: one that drains and is not done is requested again."""
    if not host["draining"]:
        return "open"
    drain = host.get("drain")
    return "draining" if drain and not drain["done"] else "drained"


def drain_text(host: Json) -> Any:
    """Return the progress of a drain."""
    return render_to_string("vcache/_drain.html", {"host": host})


def _cache(host: Json) -> Any:
    return _("%(free)s of %(all)s free") % {
        "free": filesizeformat(host["cache_free_mb"] << 20),
        "all": filesizeformat(host["cache_mb"] << 20)}


def _objectives(host: Json) -> Any:
    return _("%(missed)d of %(all)d missed") % {
        "missed": host.get("slo_missed", 0), "all": host.get("slo_tags", 0)} \
        if host.get("slo_tags") else "-"


class FilterHosts(tables.FilterAction):
    """Search in the names of the hosts."""

    def filter(self, _table: tables.DataTable, data: list[Json], filter_string: str) -> list[Json]:
        """Return the hosts whose name contains a text."""
        return [item for item in data if filter_string.lower() in item["node"].lower()]


class HostsTable(tables.DataTable):
    """All hosts."""

    node = tables.Column("node", verbose_name=_("Host"),
                         link="horizon:admin:vcache_hosts:detail")
    state = tables.Column("state", verbose_name=_("State"), display_choices=tuple(
        words.HOST_STATES.items()))
    instances = tables.Column("instances", verbose_name=_("Instances"))
    cache = tables.Column(_cache, verbose_name=_("Guaranteed Cache"))
    dirty = tables.Column("dirty_bytes", verbose_name=_("Dirty Data"),
                          attrs={"data-type": "size"}, filters=(filesizeformat,))
    objectives = tables.Column(_objectives, verbose_name=_("Objectives"))
    drain = tables.Column(drain_text, verbose_name=_("Drain"))
    progress = tables.Column(drain_state, hidden=True, status=True, status_choices=(
        ("open", True), ("draining", None), ("drained", True)))
    problem = tables.Column("problem", verbose_name=_("Problem"))

    def get_object_id(self, datum: Json) -> str:
        """Return the id of a row."""
        return str(datum["node"])

    def get_object_display(self, datum: Json) -> str:
        """Return the name of a host for messages."""
        return str(datum["node"])

    class Meta:
        """Options of the table."""

        name = "vcache_hosts"
        verbose_name = _("Cache Hosts")
        row_class = UpdateRow
        status_columns = ("progress",)
        table_actions = (FilterHosts,)
        row_actions = (Drain, Undrain)
        multi_select = False
