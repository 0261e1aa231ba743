# SPDX-License-Identifier: Apache-2.0
"""The commands ``openstack vcache``, a plug-in of python-openstackclient."""
