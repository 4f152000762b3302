"""What the management API adds; on brokers that BACKHOP_MANAGEMENT=1 has serve it."""

from __future__ import annotations

import base64
import json
import os
import time
import unittest
import urllib.parse
import urllib.request
from collections.abc import Callable

from harness import LIMIT_S, NO_PERMISSION, TRY_AGAIN, UNAVAILABLE, USAGE, LiveCase, exporter, rig, scrape

URL = os.environ.get("BACKHOP_MANAGEMENT_URL", "")


@unittest.skipUnless(URL, "BACKHOP_MANAGEMENT=1 was not set: the broker has no management API")
class Management(LiveCase):
    def ask(self, method: str, path: str, body: dict | None = None) -> None:
        """Has the administrator do something."""
        parts = urllib.parse.urlsplit(URL)
        request = urllib.request.Request(f"http://{parts.hostname}:{parts.port}/api/{path}", method=method)
        request.add_header("Authorization", "Basic " + base64.b64encode(b"guest:guest").decode())
        request.add_header("Content-Type", "application/json")
        urllib.request.urlopen(request, json.dumps(body).encode() if body else None, timeout=LIMIT_S).close()

    def findings(self, *arguments: object) -> str:
        return "".join(each["finding"] + "\n" for each in self.ends(UNAVAILABLE, "doctor", "-m", URL, "--json", *arguments).objects
                       if not each["finding"].startswith("The broker is"))

    def test_parked_queues_are_found_where_none_is_named(self) -> None:
        first, second = self.parked(2, "bad"), self.parked(1, "bad")
        found = {each["queue"]: each["count"] for each in self.ok("parked", "list", "-m", URL, "--json").objects}
        self.assertEqual((found[first + ".parked"], found[second + ".parked"]), (2, 1))
        self.assertIn(first, self.ok("top", "--once", "-m", URL.replace("guest:guest@", "")).stdout)
        self.assertIn("--management", self.ends(USAGE, "parked", "list").stderr)

    def test_the_exporter_finds_queues_that_come_later(self) -> None:
        first = self.parked(1, "bad")
        with exporter("-m", URL) as url:
            self.assertIn(f'backhop_parked_messages{{queue="{first}"}} 1\n', scrape(url))
            second = self.parked(2, "bad")
            self.await_scrape(url, lambda text: f'backhop_parked_messages{{queue="{second}"}} 2\n' in text)
            rig("delete", second + ".parked")
            self.await_scrape(url, lambda text: second not in text)

    def await_scrape(self, url: str, is_wanted: Callable[[str], bool]) -> None:
        until = time.monotonic() + LIMIT_S
        while not is_wanted(text := scrape(url)):
            self.assertLess(time.monotonic(), until, text)
            time.sleep(0.02)  # the management API remembers a list for a moment

    def test_what_goes_wrong_is_told_without_the_password(self) -> None:
        for code, url, said in (
            (NO_PERMISSION, URL.replace("guest:guest", "guest:hunter2"), "refuses this user"),
            (TRY_AGAIN, "http://guest:hunter2@127.0.0.1:1", "no answer"),
            (TRY_AGAIN, os.environ["AMQP_URL"].replace("amqp:", "http:").replace("guest:guest", "guest:hunter2"), "no answer"),
            (UNAVAILABLE, URL.replace("http:", "https:").replace("guest:guest", "guest:hunter2"), "no TLS"),
            (USAGE, "http://guest:hunter2@127.0.0.1:no", "no URL"),
            (USAGE, "guest:hunter2@127.0.0.1", "URL"),
        ):
            with self.subTest(url):
                stderr = self.ends(code, "parked", "list", "-m", url).stderr
                self.assertIn(said, stderr)
                self.assertNotIn("hunter2", stderr)

    def test_the_doctor_sees_bindings_arguments_and_policies(self) -> None:
        queue, ns = self.queue(), self.queue()
        options = (queue, "--namespace", ns, "--patience", "0s")
        rig("declare", queue, "quorum", "x-overflow=reject-publish", "x-delivery-limit=1000000000")
        rig("declare", f"{ns}.wait.1000", "quorum", "x-message-ttl=1", "x-overflow=reject-publish")
        self.ends(UNAVAILABLE, "topology", "declare", queue, "--namespace", ns)
        rig("delete", f"{ns}.wait.1000")
        self.ok("topology", "declare", queue, "--namespace", ns)
        found = self.findings(*options)
        self.assertEqual(found, f'Queue "{queue}" was declared with x-overflow "reject-publish".\n')
        key = urllib.parse.quote(urllib.parse.quote(f"backhop:{queue}", ""), "")
        self.ask("DELETE", f"bindings/%2F/e/{ns}.return/q/{queue}/{key.replace('%25', '%')}")
        self.ask("PUT", f"policies/%2F/{ns}", {"pattern": f"^{ns}", "definition": {"expires": 3600000}, "apply-to": "queues"})
        self.ask("PUT", f"operator-policies/%2F/{ns}", {"pattern": f"^{queue}.parked", "definition": {"message-ttl": 3600000}})
        rig("delete", f"{ns}.wait.800")
        rig("declare", f"{ns}.wait.800", "quorum", "x-message-ttl=1", "x-overflow=reject-publish")
        wanted = (
            f'Queue "{queue}" is not bound to exchange "{ns}.return" with routing key "backhop:{queue}".',
            f'Policy "{ns}" sets expires 3600000 on wait queues, as "{ns}.wait.',
            f'Operator policy "{ns}" sets message-ttl 3600000 on queue "{queue}.parked".',
            f'Queue "{ns}.wait.800" has x-message-ttl 1, and needs 800.',
        )
        until = time.monotonic() + LIMIT_S  # a quorum queue tells its policies every five seconds
        while not all(each in found for each in wanted) and time.monotonic() < until:
            found = self.findings(*options)
        for each in wanted:
            self.assertIn(each, found)
        self.assertEqual(found.count("sets expires 3600000 on wait queues"), 1)
