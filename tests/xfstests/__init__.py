# SPDX-License-Identifier: Apache-2.0
"""xfstests on a volume of a pool and on dm-linear, side by side, in User Mode Linux.

See README.md in this folder.
"""
