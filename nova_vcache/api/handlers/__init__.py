# SPDX-License-Identifier: Apache-2.0
"""The handlers of the operations in openapi.yaml, one file for each resource."""
