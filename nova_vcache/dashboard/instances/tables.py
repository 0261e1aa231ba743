# SPDX-License-Identifier: Apache-2.0
"""The table of instances."""

from typing import Any

from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.translation import gettext_lazy as _
from horizon import tables

from nova_vcache.dashboard import words
from nova_vcache.dashboard.templatetags.vcache import milliseconds, percent, size

Json = dict[str, Any]

#: Largest number of instances on the page of a host.
MOST = 1000


def _sum(item: Json, field: str) -> str:
    known = [disk[field] for disk in item["disks"] if disk.get(field) is not None]
    return size(sum(known) if known else None)


def _tags(item: Json) -> str:
    return ", ".join(f"{disk['disk']}: {disk['tag']}" for disk in item["disks"]
                     if disk.get("tag") is not None) or "-"


def _state(item: Json) -> Any:
    text, label = words.SLO_STATES.get(words.slo_state(item), words.SLO_STATES["unknown"])
    return render_to_string("vcache/_label.html", {"text": text, "label": label})


def _causes(item: Json) -> Any:
    found = [words.cause(one, own=False) for one in item.get("objectives", ())
             if one["state"] == "missed"]
    return render_to_string("vcache/_lines.html", {"lines": list(dict.fromkeys(found))})


def _host_url(item: Json) -> str | None:
    return item.get("host") and reverse("horizon:admin:vcache_hosts:detail", args=[item["host"]])


class FilterInstances(tables.FilterAction):
    """Select instances by what vcache-api can select."""

    filter_type = "server"
    filter_choices = (
        ("slo_state", _("Objectives ="), True, _("met, missed, unknown or none")),
        ("mode", _("Mode ="), True, _("writeback, writethrough, flush-only or none")),
        ("host", _("Host ="), True),
        ("project_id", _("Project ID ="), True))


class InstancesTable(tables.DataTable):
    """Instances of all projects."""

    uuid = tables.Column("uuid", verbose_name=_("Instance ID"),
                         link="horizon:admin:vcache_instances:detail")
    host = tables.Column("host", verbose_name=_("Host"),
                         link=_host_url)
    mode = tables.Column(lambda item: item["specs"].get("mode"), verbose_name=_("Mode"),
                         display_choices=tuple(words.MODES.items()))
    tags = tables.Column(_tags, verbose_name=_("Tags"))
    share = tables.Column(lambda item: _sum(item, "share_bytes"), verbose_name=_("Share"),
                          attrs={"data-type": "size"})
    cached = tables.Column(lambda item: _sum(item, "cached_bytes"), verbose_name=_("Cached"),
                           attrs={"data-type": "size"})
    hits = tables.Column(lambda item: percent(item.get("hit_ratio")),
                         verbose_name=_("Read Hits"))
    p50 = tables.Column(lambda item: milliseconds(item.get("flush_p50_us")),
                        verbose_name=_("Flush p50"))
    p99 = tables.Column(lambda item: milliseconds(item.get("flush_p99_us")),
                        verbose_name=_("Flush p99"))
    slo = tables.Column(_state, verbose_name=_("Objectives"))
    causes = tables.Column(_causes, verbose_name=_("Cause"))

    def get_object_id(self, datum: Json) -> str:
        """Return the id of a row."""
        return str(datum["uuid"])

    def get_object_display(self, datum: Json) -> str:
        """Return the name of an instance for messages."""
        return str(datum["uuid"])

    class Meta:
        """Options of the table."""

        name = "vcache_instances"
        verbose_name = _("Cached Instances")
        multi_select = False


class AllInstancesTable(InstancesTable):
    """The same, with a filter."""

    class Meta:
        """Options of the table."""

        name = "vcache_instances"
        verbose_name = _("Cached Instances")
        table_actions = (FilterInstances,)
        multi_select = False
