import os
import re
import subprocess
import tempfile
from pathlib import Path

from harness import BUILD, LiveCase, drain, rig

README = Path(__file__).parents[3] / "README.md"


class BadNight(LiveCase):
    def test_the_page_of_the_readme_leads_to_an_empty_parked_queue(self):
        """Types each line of the page's consoles, and expects what stands below, times and places aside."""
        page = README.read_text().split("## After a bad night")[1].split("\n## ")[0]
        consoles = re.findall(r"```console\n(.*?)```", page, re.DOTALL)
        steps = [step for console in consoles for step in re.findall(r"\$ (.*)\n((?:[^$].*\n)*)", console)]
        self.assertGreater(len(steps), 5)
        queue = self.queue()
        rig("park", queue, 30, "507 queue %d is full", "507 queue %d is full", "ValueError: no such zone")
        self.await_ready(queue + ".parked", at_least=30)
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
        self.assertEqual(len(drain(queue, 20)), 20)

    def plain(self, line):
        return " ".join(re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d", "TIME", re.sub(r"m\d{6}", "ID", line)).split())
