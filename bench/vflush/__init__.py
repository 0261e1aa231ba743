# SPDX-License-Identifier: Apache-2.0
"""The vFLUSH paper's experiments on our SSD, in virtual time."""
