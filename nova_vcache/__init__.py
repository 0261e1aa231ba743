# SPDX-License-Identifier: Apache-2.0
"""The Nova side of nova-vcache."""
