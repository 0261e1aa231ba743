# SPDX-License-Identifier: Apache-2.0
"""One cloud and one browser for all tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.horizon.browser.cloud import ROOT, HorizonCloud
from tests.horizon.browser.pages import Browser

#: Where screenshots go; doc/source/admin/horizon.rst has some of them.
PICTURES = ROOT / "build/horizon/pictures"


@pytest.fixture(scope="session")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HorizonCloud]:
    # The broker may run as another user.
    folder: Path = tmp_path_factory.mktemp("cloud")
    made = HorizonCloud(folder)
    yield made
    made.close()


@pytest.fixture(scope="session")
def browser(cloud: HorizonCloud) -> Iterator[Browser]:
    PICTURES.mkdir(parents=True, exist_ok=True)
    made = Browser(cloud.dashboard, PICTURES)
    yield made
    made.close()


@pytest.fixture
def admin(browser: Browser) -> Browser:
    browser.login("admin")
    return browser


@pytest.fixture
def member(browser: Browser) -> Browser:
    browser.login("member")
    return browser
