# SPDX-License-Identifier: Apache-2.0
"""Hand over to pbr, for the tools that still look for this file."""

import setuptools

setuptools.setup(pbr=True)
