# SPDX-License-Identifier: Apache-2.0
"""The user-space tools, on images that are damaged in each way."""
