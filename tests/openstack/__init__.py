# SPDX-License-Identifier: Apache-2.0
"""Tests with Nova and Placement, in the environment of .ci/openstack-venv."""
