# SPDX-License-Identifier: Apache-2.0
"""Observation of the kernel: samples of all devices and tags, once a second.

:class:`.sample.Sample` is the interface. Whatever evaluates the past (metrics, recent
latencies, ``vcache top``, policies) is a function of samples, so that it can be tested and
replayed on a recording; see :func:`.recording.read_samples`.
"""
