# SPDX-License-Identifier: Apache-2.0
"""Our pages against the rules of WCAG 2.1, levels A and AA, that axe-core can check."""

from typing import Any

import pytest
from axe_core_python.selenium import Axe

from tests.horizon.browser.pages import Browser
from tests.horizon.browser.test_browser import DATABASE, FLAVORS, HOSTS, INSTANCES

_RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]


def barriers(browser: Browser, part: str) -> list[str]:
    """Return the violations in the part of the page with a CSS selector."""
    found: dict[str, Any] = Axe().run(browser.driver, part, {"runOnly": _RULES})
    assert found["passes"], "no rule applies"
    return [f"{violation['id']}: {node['html'][:300]}: {node['failureSummary']}"
            for violation in found["violations"] for node in violation["nodes"]]


@pytest.mark.parametrize(("path", "text"), [
    (HOSTS, "compute1"),
    (f"{HOSTS}compute1/?tab=vcache_host__pools", "Used 6.0 GB"),
    (INSTANCES, "Missed"),
    (f"{INSTANCES}{DATABASE}/", "comes from tag 2"),
    (f"{INSTANCES}{DATABASE}/?tab=vcache_instance__curves", "Hit ratio"),
    (FLAVORS, "m1.db"),
])
def test_pages_have_no_barriers(admin: Browser, path: str, text: str) -> None:
    admin.open(path)
    admin.await_text(text)
    assert barriers(admin, "#content_body") == []


def test_the_form_of_a_flavor_has_no_barriers(admin: Browser) -> None:
    admin.open(FLAVORS)
    admin.row("m1.db").find_element("partial link text", "Edit Cache").click()
    admin.find("#id_weight")
    assert barriers(admin, ".modal-dialog") == []
