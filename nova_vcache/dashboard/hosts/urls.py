# SPDX-License-Identifier: Apache-2.0
"""URLs of the panel."""

from django.urls import re_path

from nova_vcache.dashboard.hosts import views

urlpatterns = [
    re_path(r"^$", views.IndexView.as_view(), name="index"),
    re_path(r"^(?P<node>[^/]+)/$", views.DetailView.as_view(), name="detail"),
]
