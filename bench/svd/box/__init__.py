# SPDX-License-Identifier: Apache-2.0
"""In the box: the SSD's process, the Linux NVMe/TCP host, images, the dm target."""
