# SPDX-License-Identifier: Apache-2.0
"""The data plane in a simulation: native/sim is the program, this package runs it."""
