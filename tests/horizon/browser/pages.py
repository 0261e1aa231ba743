# SPDX-License-Identifier: Apache-2.0
"""Chromium, driven by Selenium, and what is common to all pages of Horizon."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException, WebDriverException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

from tests.box.limits import limit
from tests.cloud.control import PASSWORD

T = TypeVar("T")

# Seconds for a page, on a quiet machine.
_SECONDS = 60


class Browser:
    """A browser without a window.

    :param base: URL of Horizon
    :param pictures: folder of screenshots
    """

    def __init__(self, base: str, pictures: Path) -> None:
        self._base = base
        self._pictures = pictures
        self._sessions: dict[str, list[dict[str, Any]]] = {}
        options = webdriver.ChromeOptions()
        for word in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage",
                     "--window-size=1400,900", "--force-device-scale-factor=1",
                     "--hide-scrollbars", "--lang=en"):
            options.add_argument(word)
        options.page_load_strategy = "eager"
        options.binary_location = shutil.which("chromium") or ""
        options.set_capability("goog:loggingPrefs", {"browser": "SEVERE"})
        self.driver = webdriver.Chrome(options, Service(shutil.which("chromedriver")))
        self.driver.set_page_load_timeout(limit(_SECONDS * 5))

    def close(self) -> None:
        """Stop the browser."""
        self.driver.quit()

    def open(self, path: str) -> None:
        """Open a page."""
        self.driver.get(self._base + path)

    def login(self, user: str) -> None:
        """Log in, by keyboard only, or use the session of an earlier login."""
        self.driver.delete_all_cookies()
        for cookie in self._sessions.get(user, ()):
            self.driver.add_cookie(cookie)
        if user not in self._sessions:
            # Not to the overview, which asks Nova for much.
            self.open("/auth/login/?next=/settings/")
            self.find("#id_username").send_keys(user, Keys.TAB, PASSWORD, Keys.ENTER)
            self.until(lambda: "/auth/login" not in self.driver.current_url, "logged in")
            self._sessions[user] = self.driver.get_cookies()

    def find(self, selector: str) -> WebElement:
        """Return the element of a CSS selector, as soon as it can be seen."""
        return self.until(lambda: next((one for one in self.all(selector) if one.is_displayed()),
                                       None), f"an element {selector!r}")

    def link(self, text: str) -> WebElement:
        """Return the link with a text, as soon as it can be seen."""
        return self.until(lambda: next((
            one for one in self.driver.find_elements(By.PARTIAL_LINK_TEXT, text)
            if one.is_displayed()), None), f"a link {text!r}")

    def button(self, inside: WebElement, text: str) -> WebElement:
        """Return the button with a text within an element."""
        return self.until(lambda: next((one for one in inside.find_elements(By.TAG_NAME, "button")
                                        if one.text == text), None), f"a button {text!r}")

    def all(self, selector: str) -> list[WebElement]:
        """Return all elements of a CSS selector."""
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def row(self, text: str) -> WebElement:
        """Return the row of a table that contains a text."""
        return self.until(lambda: next((one for one in self.all("table tbody tr")
                                        if text in one.text), None), f"a row with {text!r}")

    @property
    def text(self) -> str:
        """What can be read on the page."""
        return str(self.driver.find_element(By.TAG_NAME, "body").text)

    def await_text(self, text: str) -> None:
        """Wait until a text can be read."""
        self.until(lambda: text in self.text, f"the text {text!r}")

    def until(self, condition: Callable[[], T | None], what: str) -> T:
        """Wait until a condition holds; return what it returns."""
        end = time.monotonic() + limit(_SECONDS)
        while True:
            try:
                found = condition()
            except StaleElementReferenceException:
                found = None  # the page has changed in between
            if found:
                return found
            # Such a page does not change any more.
            assert not self.all(".alert-danger"), f"{what}: {self.text[-2000:]}"
            assert time.monotonic() < end, f"{what}: not on {self.driver.current_url}:\n" + \
                self.text[-2000:]
            time.sleep(0.1)

    def picture(self, name: str, height: int = 0) -> None:
        """Take a screenshot of the page.

        :param height: of the picture in pixels; 0: of the whole page
        """
        whole = int(self.driver.execute_script(
            "return Math.max(document.body.scrollHeight, document.documentElement.scrollHeight)"))
        self.driver.set_window_size(1400, (height or whole) + 90)
        self.driver.save_screenshot(str(self._pictures / f"{name}.png"))
        self.driver.set_window_size(1400, 900)

    def problems(self) -> list[str]:
        """Return the errors of scripts since the last call."""
        try:
            return [item["message"] for item in self.driver.get_log("browser")
                    if "favicon" not in item["message"]]
        except WebDriverException:
            return []
