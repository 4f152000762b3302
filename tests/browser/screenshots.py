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


def main() -> None:
    to = Path(sys.argv[1])
    to.mkdir(parents=True, exist_ok=True)
    for at, (queue, errors) in enumerate(ERRORS.items()):
        run("topology", "declare", queue, "--work-queue", "quorum")
        rig("park", queue, 400 - 120 * at, *errors)
        spread(queue, 9 - 3 * at)
    with Web("--allow", "replay,drop", *ERRORS) as web, chromium() as started:
        for scheme in ("light", "dark"):
            with Browser(started, web, width=1000, height=640, scheme=scheme) as browser:
                page = browser.open()

                def shot(name: str, suffix: str = "" if scheme == "light" else "-dark") -> None:
                    page.screenshot(path=to / f"{name}{suffix}.png")

                browser.look()
                shot("tonight")
                if scheme == "dark":
                    continue
                page.locator("tbody a").first.click()
                page.get_by_role("button", name="Show messages").first.click()
                page.locator("summary").first.click()
                shot("group")
                page.get_by_role("button", name="Replay…").first.click()
                page.get_by_role("button", name="Count messages").click()
                page.wait_for_selector("form input")
                shot("replay")
                page.locator("form input").fill(page.locator("form label").inner_text().split()[1])
                page.keyboard.press("Enter")
                page.get_by_text("a second now").wait_for()
                page.wait_for_timeout(4000)
                shot("actions")
                browser.go("waits")
                page.wait_for_selector("tbody tr")
                shot("waits")
                browser.go("health")
                page.get_by_role("button", name="Check now").click()
                page.wait_for_selector("main section, main .ok")
                shot("health")
                browser.go("policy")
                page.wait_for_selector("svg.plot")
                shot("policy")
                browser.go("history")
                page.wait_for_selector("tbody tr")
                shot("history")
    print(*sorted(os.listdir(to)))


if __name__ == "__main__":
    main()
