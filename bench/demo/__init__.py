# SPDX-License-Identifier: Apache-2.0
"""The demo: two VMs on one SSD, one of them fsyncs; bare and under vcache."""
