"""The consoles of docs/operations.md, as a reader types them."""

import json
import os
import re
import subprocess
import tempfile
from pathlib import Path

from harness import BUILD, LiveCase, drain, long, rig

PAGE = Path(__file__).parents[3] / "docs/operations.md"


class Pages(LiveCase):
    @long
    def test_after_a_bad_night_the_page_leads_to_an_empty_parked_queue(self):
        queue = self.queue()
        rig("park", queue, 30, "507 queue %d is full", "507 queue %d is full", "ValueError: no such zone")
        self.await_ready(queue + ".parked", at_least=30)
        self.play("After a bad night", queue)
        self.assertEqual(len(drain(queue, 20)), 20)
        self.assertEqual(drain(queue + ".parked", 0), [])

    def test_coming_from_hand_made_wait_queues_the_page_leads_to_empty_ones(self):
        queue = self.queue()
        wait = queue + ".retry.1h"
        rig("declare", queue, "quorum")
        rig("declare", wait, "classic", "x-message-ttl=3600000", "x-dead-letter-exchange=", f"x-dead-letter-routing-key={queue}")
        counts = [1] * 1200 + [2] * 660 + [10] * 40
        lines = (json.dumps({"queue": "", "headers": [["x-retries", "l", each]], "body": ""}) + "\n" for each in counts)
        self.ok("parked", "load", "-", "--to", wait, stdin="".join(lines))
        self.play("Coming from hand-made wait queues", queue)
        self.assertEqual(drain(wait, 0), [])
        self.assertEqual(len(drain(queue + ".parked", 40)), 40)

    def play(self, title, queue):
        """Types each line of the page's consoles, and expects what stands below, times and places aside."""
        page = PAGE.read_text().split(f"## {title}")[1].split("\n## ")[0]
        consoles = re.findall(r"```console\n(.*?)```", page, re.DOTALL)
        steps = [step for console in consoles for step in re.findall(r"\$ (.*)\n((?:[^$].*\n)*)", console)]
        self.assertGreater(len(steps), 1)
        with tempfile.TemporaryDirectory() as directory:
            for command, expected in steps:
                with self.subTest(command):
                    ran = subprocess.run(
                        ["sh", "-c", re.sub(r"\borders\b", queue, command)], cwd=directory, capture_output=True, text=True, check=True,
                        timeout=120, env={**os.environ, "PATH": f"{BUILD}:{os.environ['PATH']}"}
                    )
                    got = [self.plain(line.replace(queue, "orders")) for line in (ran.stdout + ran.stderr).splitlines()]
                    for line in expected.splitlines():
                        self.assertIn(self.plain(line), got)

    def plain(self, line):
        return " ".join(re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d", "TIME", re.sub(r"m\d{6}", "ID", line)).split())
