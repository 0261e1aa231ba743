# SPDX-License-Identifier: Apache-2.0
"""The side of an instance of an elastic SSD. It needs nothing of the host's packages."""
