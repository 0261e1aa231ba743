# SPDX-License-Identifier: Apache-2.0
"""What has to be set before Nova is imported."""

import os

# Nova's own switch: no test of ours patches the interpreter.
os.environ["OS_NOVA_DISABLE_EVENTLET_PATCHING"] = "1"
