# SPDX-License-Identifier: Apache-2.0
"""URLs of the panel."""

from django.urls import path

from nova_vcache.dashboard.instances import views

urlpatterns = [
    path("", views.IndexView.as_view(), name="index"),
    path("<uuid:uuid>/", views.DetailView.as_view(), name="detail"),
]
