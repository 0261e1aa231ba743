# SPDX-License-Identifier: Apache-2.0
"""Domains that live, while the agent is killed at random moments.

``instance.py`` is one instance and what it must contain, ``actor.py`` lets it do things,
``killer.py`` kills the agent, ``verdict.py`` compares the final state with libvirt and the
kernel, ``run.py`` puts them together.
"""
