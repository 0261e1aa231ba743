# SPDX-License-Identifier: Apache-2.0
"""The host agent of nova-vcache."""
