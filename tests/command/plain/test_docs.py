"""docs/reference/command.md shows what the command prints."""

import unittest
from pathlib import Path

from harness import run

PAGE = Path(__file__).parents[3] / "docs/reference/command.md"


class Docs(unittest.TestCase):
    def test_the_page_of_the_command_shows_its_help(self):
        self.assertIn(f"```text\n{run('--help').stdout}```\n", PAGE.read_text())
