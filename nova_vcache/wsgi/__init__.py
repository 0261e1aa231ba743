# SPDX-License-Identifier: Apache-2.0
"""Modules with an ``application`` for a WSGI server."""
