# SPDX-License-Identifier: Apache-2.0
"""The client of vcache-api, for the openstack plug-in and other programs."""
