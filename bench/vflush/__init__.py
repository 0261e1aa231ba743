# SPDX-License-Identifier: Apache-2.0
"""The vFLUSH paper's experiments on the emulated SSD, in virtual time."""
