# SPDX-License-Identifier: Apache-2.0
"""Set up the pools and attached devices of the host again after a restart."""
