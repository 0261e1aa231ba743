# SPDX-License-Identifier: Apache-2.0
"""The tab on the page of an instance: the figures of the project's own instance only."""

from typing import Any

from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _
from horizon import exceptions, tabs
from openstack_dashboard import policy
from openstack_dashboard.api import base

from nova_vcache.client.rest import NotFound
from nova_vcache.dashboard import api, figures
from nova_vcache.dashboard.instances.tabs import plots

Json = dict[str, Any]


class VCacheTab(policy.PolicyTargetMixin, tabs.Tab):
    """Objectives, hit ratio and latencies of the instance, and its miss-ratio curves."""

    name = _("Cache")
    slug = "vcache"
    template_name = "vcache/_own.html"
    preload = False

    def allowed(self, request: HttpRequest) -> bool:
        """Return True if the cloud has vcache-api, and the user may ask it."""
        return base.is_service_enabled(request, "vcache") and bool(policy.check(
            (("vcache", "vcache:instances:get"),), request,
            self.get_policy_target(request, self.tab_group.kwargs["instance"])))

    def get_context_data(self, request: HttpRequest) -> Json:
        """Return the values of the template."""
        uuid = self.tab_group.kwargs["instance"].id
        try:
            found = api.instance(request, uuid)
        except NotFound:
            return {}  # it does not run on a host with vcache
        except Exception:
            exceptions.handle(request, _("Unable to retrieve the figures of the cache."))
            return {}
        return {**figures.context(found, own=True), "plots": plots(request, uuid)}
