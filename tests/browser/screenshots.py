"""Writes a picture of each screen of `backhop web` to a directory, on the broker of AMQP_URL."""

import os
import sys
from pathlib import Path

from browser import Browser, chromium
from harness import rig
from webclient import Web

ERRORS = {
    "orders": ["TimeoutError: POST https://billing.internal/v2/charge timed out after %d ms", "KeyError: 'customer_id'", "no such order %d"],
    "invoices": ["duplicate key value violates unique constraint \"invoices_pkey\"", "TimeoutError: POST https://billing.internal/v2/charge timed out after %d ms"],
    "emails": ["SMTP 550 5.1.1 <user%d@example.com>: Recipient address rejected"],
}


def main() -> None:
    to = Path(sys.argv[1])
    to.mkdir(parents=True, exist_ok=True)
    for at, (queue, errors) in enumerate(ERRORS.items()):
        rig("park", queue, 120 - 30 * at, *errors)
    with Web("--allow", "replay,drop", *ERRORS) as web, chromium() as started:
        for scheme in ("light", "dark"):
            with Browser(started, web, width=1100, height=760, scheme=scheme) as browser:
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
                page.get_by_role("button", name="Count them").click()
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
                page.get_by_role("button", name="Examine").click()
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
