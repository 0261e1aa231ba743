# SPDX-License-Identifier: Apache-2.0
"""Run pytest in a box: for suites whose tests need root under our kernel."""

import os
import subprocess
import sys
from collections.abc import Sequence

from tests.box.machine import REPO, BoxError, BoxTimeout, Machine

_PYTEST = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider")

#: Exit statuses for what is not pytest's own, as timeout(1) has them.
TIMED_OUT, FAILED = 124, 125


def _compile(paths: Sequence[str]) -> None:
    """Have pytest compile the tests here: in the box that takes minutes, and it keeps nothing.

    What is wrong with a test is reported when the box collects it.
    """
    env = {**os.environ, "VCACHE_BOX": "1"}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    subprocess.run([*_PYTEST, "--collect-only", "-q", *paths], cwd=REPO, env=env, check=False,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def run(box: Machine, folder: str, arguments: Sequence[str], timeout: float) -> int:
    """Run the tests of a folder, or those that the arguments name.

    :param folder: below tests/
    :param arguments: of pytest
    :param timeout: seconds
    :return: pytest's exit status, TIMED_OUT or FAILED
    """
    named = [a for a in arguments if not a.startswith("-") and "tests/" in a]
    paths = named or [f"tests/{folder}"]
    _compile(paths)
    command = [*_PYTEST, "-v", "--tb=short", *arguments, *([] if named else paths)]
    try:
        return box.run(command, timeout=timeout).status
    except BoxTimeout as error:
        print(error, file=sys.stderr)
        return TIMED_OUT
    except BoxError as error:
        print(error, file=sys.stderr)
        return FAILED
