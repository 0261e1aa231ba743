# SPDX-License-Identifier: Apache-2.0
"""What the operations of openapi.yaml do: one file a resource."""
