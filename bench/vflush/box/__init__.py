# SPDX-License-Identifier: Apache-2.0
"""The complete system: Linux, its NVMe/TCP host, ext4, the dm target, the SSD's process."""
