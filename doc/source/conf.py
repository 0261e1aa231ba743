# SPDX-License-Identifier: Apache-2.0
"""Sphinx configuration: make docs."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "_ext"))

project = "nova-vcache"
copyright = "the nova-vcache authors"
extensions = ["config_options", "flavor_keys", "metrics_table", "release_notes",
              "sphinxcontrib.openapi"]
# The one that lists the fields of bodies.
openapi_default_renderer = "httpdomain"
# Sphinx's own theme: pages that load nothing from elsewhere. The OpenStack
# theme carries the navigation and the look of docs.openstack.org.
html_theme = "alabaster"
html_theme_options = {
    "description": "Isolated flushes for the disks of OpenStack instances",
    "fixed_sidebar": True,
    "page_width": "1080px",
    "sidebar_width": "240px",
}
nitpicky = True
