# SPDX-License-Identifier: Apache-2.0
"""The Cinder volume driver of nova-vcache: logical volumes with a cache and isolated flushes."""
