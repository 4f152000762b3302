"""A browser with the page of `backhop web`, for the tests and for screenshots."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser as Chromium
from playwright.sync_api import Page, sync_playwright
from webclient import Web

AXE = Path(os.environ["BACKHOP_AXE"])
SCREENS = ("", "jobs", "queues", "health", "policy", "history")


@contextlib.contextmanager
def chromium() -> Iterator[Chromium]:
    """Runs the headless shell of Debian's chromium, which draws no windows."""
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=shutil.which("chromium-headless-shell"), args=["--no-sandbox"])
        yield started
        started.close()


class Browser(contextlib.AbstractContextManager):
    """A session of its own with one page. It records script errors and violations of the page's rules (CSP)."""

    def __init__(self, started: Chromium, web: Web, width: int = 1100, height: int = 800, scheme: str = "light") -> None:
        self.web = web
        self.errors: list[str] = []
        self._context = started.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        self.page: Page = self._context.new_page()
        self.page.set_default_timeout(60000)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("dialog", lambda dialog: self.errors.append(dialog.message))
        self.page.on("console", lambda line: self.errors.append(line.text) if "Content Security Policy" in line.text else None)

    def __exit__(self, *_: object) -> None:
        self._context.close()

    def open(self) -> Page:
        """Opens the address that the program printed, and waits for the first figures."""
        self.page.goto(self.web.url)
        self.page.wait_for_selector(".big")
        return self.page

    def look(self) -> None:
        self.page.get_by_role("button", name=re.compile("^Read (parked messages|again)$")).click()
        self.page.wait_for_selector("tbody tr")

    def count(self, button: str) -> None:
        """Opens the dialog of a button, and counts."""
        self.page.get_by_role("button", name=button).first.click()
        self.page.get_by_role("button", name="Count messages").click()

    def go(self, screen: str) -> None:
        self.page.goto(f"{self.web.origin}/#/{screen}")
        self.page.wait_for_selector("h2")

    def violations(self) -> list[Any]:
        """Returns the violations that axe finds on this screen."""
        self.page.evaluate(AXE.read_text())
        found = self.page.evaluate("axe.run()")
        return [(each["id"], [node["html"] for node in each["nodes"][:3]]) for each in found["violations"]]

    def is_too_wide(self) -> bool:
        return self.page.evaluate("document.scrollingElement.scrollWidth > window.innerWidth")
