# SPDX-License-Identifier: Apache-2.0
"""The real thing: Linux, its NVMe/TCP host, ext4, the dm target and the SSD's process."""
