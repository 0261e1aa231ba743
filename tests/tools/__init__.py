# SPDX-License-Identifier: Apache-2.0
"""The user-space tools on damaged images."""
