# SPDX-License-Identifier: Apache-2.0
"""The commands vcache-host and nova-vcache-status."""
