# SPDX-License-Identifier: Apache-2.0
"""What Placement knows of a host's cache: names, flavors' requests, the reporter."""
