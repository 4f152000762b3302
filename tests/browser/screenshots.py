"""Writes a picture of each screen of `backhop web` to a directory, on the broker of AMQP_URL."""

import json
import os
import sys
import tempfile
import time
from pathlib import Path

from browser import Browser, chromium
from harness import rig, run
from webclient import Web

ERRORS = {
    "orders": ["TimeoutError: POST https://billing.internal/v2/charge timed out after %d ms", "KeyError: 'customer_id'", "no such order %d"],
    "invoices": ["duplicate key value violates unique constraint \"invoices_pkey\"", "TimeoutError: POST https://billing.internal/v2/charge timed out after %d ms"],
    "emails": ["SMTP 550 5.1.1 <user%d@example.com>: Recipient address rejected"],
}


def spread(queue: str, hours: float) -> None:
    """Spreads the failures of parked messages over the last hours. It saves, drops and loads them with other times."""
    with tempfile.TemporaryDirectory() as directory:
        saved, changed = Path(directory, "saved"), Path(directory, "changed")
        run("parked", "drop", queue, saved, "--yes")
        lines = [json.loads(line) for line in saved.read_text().splitlines()]
        for at, line in enumerate(lines):
            kind = len(next(value for name, _, value in line["headers"] if name == "backhop-error")) % 5
            age_ms = int(hours * 3600000 * (1 - at / len(lines)) ** (1 + kind / 2)) + 60000 * kind
            for header in line["headers"]:
                if header[0] == "backhop-first-failure":
                    header[2] = int(time.time() * 1000) - age_ms
        changed.write_text("".join(json.dumps(line) + "\n" for line in lines))
        run("parked", "load", changed)


def wait_in(delay_ms: int, number: int) -> None:
    """Puts messages into a wait queue. Its TTL is longer than the pictures take."""
    rig("fill", f"backhop.wait.{delay_ms}", number)


def begin() -> None:
    """Declares the queues, and parks messages whose failures are spread over the last hours."""
    for at, (queue, errors) in enumerate(ERRORS.items()):
        run("topology", "declare", queue, "--work-queue", "quorum")
        rig("park", queue, 400 - 120 * at, *errors)
        spread(queue, 9 - 3 * at)
    for delay_ms, number in ((100000, 12), (160000, 48), (250000, 7)):
        wait_in(delay_ms, number)


class Camera:
    """Takes the pictures of one session."""

    def __init__(self, browser: Browser, to: Path) -> None:
        self.browser, self.page, self.to = browser, browser.open(), to

    def shot(self, name: str, height: int = 640) -> None:
        self.page.set_viewport_size({"width": 1000, "height": height})
        self.page.wait_for_timeout(200)
        self.page.screenshot(path=self.to / f"{name}.png")

    def tonight(self, name: str) -> None:
        self.browser.look()
        self.page.locator("button:enabled", has_text="Read again").wait_for()  # all queues are read
        self.shot(name)

    def open_group(self) -> None:
        self.page.locator("tbody a").first.click()
        self.page.get_by_role("button", name="Show messages").first.click()
        self.page.locator("summary").first.click()

    def count(self, button: str) -> None:
        """Opens the dialog of a button, and waits for its count."""
        self.browser.count(button)
        self.page.wait_for_selector("form input")

    def confirm(self) -> None:
        self.page.locator("form input").fill(self.page.locator("form label").inner_text().split()[1])
        self.page.keyboard.press("Enter")

    def act(self) -> None:
        """A group, a replay that runs, and a drop that is done."""
        self.open_group()
        self.page.get_by_text("840 parked").wait_for()  # nothing is held for the list
        self.shot("group", 900)
        self.count("Replay…")
        self.shot("replay", 760)
        self.confirm()
        self.page.get_by_text("a second now").wait_for()
        self.browser.go("")
        self.page.locator("tbody a", has_text="KeyError").click()
        self.count("Drop…")
        self.confirm()
        self.page.get_by_text("saved and dropped").wait_for()
        self.page.wait_for_timeout(4000)
        self.shot("actions")

    def screens(self) -> None:
        self.browser.go("queues")
        self.page.wait_for_selector("tbody tr")
        self.shot("queues")
        self.browser.go("health")
        self.page.get_by_role("button", name="Check now").click()
        self.page.wait_for_selector("main section, main .ok")
        self.shot("health")
        self.browser.go("policy")
        self.page.wait_for_selector("svg.plot")
        self.shot("policy", 900)
        self.browser.go("history")
        self.page.wait_for_selector("tbody tr")
        self.shot("history", 600)
        self.count("Load…")
        self.shot("load", 600)
        self.page.keyboard.press("Escape")


def main() -> None:
    to = Path(sys.argv[1])
    to.mkdir(parents=True, exist_ok=True)
    begin()
    with Web("--allow", "replay,drop", *ERRORS) as web, chromium() as started:
        with Browser(started, web, width=1000, height=640) as browser:
            camera = Camera(browser, to)
            camera.tonight("tonight")
            camera.act()
            camera.screens()
        with Browser(started, web, width=1000, height=640, scheme="dark") as browser:
            Camera(browser, to).tonight("tonight-dark")
    print(*sorted(os.listdir(to)))


if __name__ == "__main__":
    main()
