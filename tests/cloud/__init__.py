# SPDX-License-Identifier: Apache-2.0
"""The services of OpenStack, for tests and for the all-in-one."""
