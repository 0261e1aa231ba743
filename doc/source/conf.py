# SPDX-License-Identifier: Apache-2.0
"""Sphinx configuration: make docs."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "_ext"))

project = "nova-vcache"
copyright = "the nova-vcache authors"
extensions = ["flavor_keys", "openstackdocstheme"]
html_theme = "openstackdocs"
# Not hosted on docs.openstack.org: no repository and no bug tracker there.
openstackdocs_auto_name = False
openstackdocs_auto_version = False
openstackdocs_use_storyboard = False
html_theme_options = {"display_global_toc_section": True}
nitpicky = True
