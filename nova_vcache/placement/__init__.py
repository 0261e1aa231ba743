# SPDX-License-Identifier: Apache-2.0
"""The cache of a host in Placement: names, requests of flavors, and the reporter."""
