# SPDX-License-Identifier: Apache-2.0
"""The Django application."""

from django.apps import AppConfig


class VCacheDashboard(AppConfig):
    """The application, with a label that differs from that of other dashboards."""

    name = "nova_vcache.dashboard"
    label = "vcache_dashboard"
