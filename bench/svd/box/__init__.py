# SPDX-License-Identifier: Apache-2.0
"""In the box: the SSD's process, Linux's NVMe/TCP host, images, the dm target."""
