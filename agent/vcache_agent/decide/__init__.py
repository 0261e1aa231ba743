# SPDX-License-Identifier: Apache-2.0
"""Decide how the caches of a host are divided: pure functions of what was observed.

See README.md. Nothing here accesses the host, so a decision can be repeated on recorded samples.
"""
