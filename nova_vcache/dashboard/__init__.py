# SPDX-License-Identifier: Apache-2.0
"""The plug-in for Horizon: panels for administrators, and a tab of an instance."""
