"""The command and a management API that is silent, endless, or not the one that was named."""

from __future__ import annotations

import signal
import subprocess

from harness import BUILD, LIMIT_S, TRY_AGAIN, UNAVAILABLE, USAGE, Case
from rogueapi import api

INTERRUPTED = 130
NOWHERE = "amqp://127.0.0.1:1"


class RogueApi(Case):
    def test_s4_6_a_signal_ends_a_command_that_asks(self):
        for command in (["top"], ["top", "--once"], ["exporter", "--listen", "127.0.0.1:0"]):
            with self.subTest(command), api(lambda _: None) as (url, asked):
                arguments = [BUILD / "backhop", *command, "--uri", NOWHERE, "--management", url]
                with subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
                    asked.get(timeout=LIMIT_S)
                    process.send_signal(signal.SIGTERM)
                    _, said = process.communicate(timeout=LIMIT_S)
                self.assertEqual((process.returncode, said), (INTERRUPTED, ""))

    def test_s4_7_pages_without_end_are_not_all_read(self):
        def endless(page: int) -> dict:
            return {"page_count": 10**12, "items": [{"name": f"q{page}.parked"}]}

        def empty(_: int) -> dict:
            return {"page_count": 10**12, "items": []}

        with api(endless) as (url, asked):
            ran = self.ends(UNAVAILABLE, "parked", "list", "--uri", NOWHERE, "--management", url)
            self.assertIn("lists more than 1000000 queues: name the work queues as arguments", ran.stderr)
            self.assertEqual(asked.qsize(), 2000)
        with api(empty) as (url, asked):
            ran = self.ends(UNAVAILABLE, "parked", "list", "--uri", NOWHERE, "--management", url)
            self.assertIn("has no queue whose name ends in .parked", ran.stderr)
            self.assertEqual(asked.qsize(), 1)

    def test_s4_13_a_proxy_of_the_environment_does_not_get_the_password(self):
        with api(lambda _: {}) as (url, asked):
            proxies = dict.fromkeys(("http_proxy", "https_proxy", "all_proxy", "HTTPS_PROXY", "ALL_PROXY"), url)
            ran = self.ends(TRY_AGAIN, "parked", "list", "--uri", NOWHERE, "--management", "http://127.0.0.1:1", **proxies)
            self.assertIn("no answer from the management API at 127.0.0.1:1", ran.stderr)
            self.assertTrue(asked.empty())

    def test_s4_14_a_base_path_that_a_browser_rewrites_is_refused(self):
        for path in ("/a/../b", "/a/./b", "/.", "/a;b", "/a//b", "/a b", "/a?b"):
            ran = self.ends(USAGE, "web", "--listen", "127.0.0.1:0", "--base-path", path)
            self.assertIn("is no path, as /backhop", ran.stderr)
