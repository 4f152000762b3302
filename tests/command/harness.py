"""What the tests of the command share: they run the program as a user does."""

from __future__ import annotations

import json
import os
import subprocess
import unittest
from pathlib import Path
from typing import Any

BUILD = Path(os.environ["BACKHOP_BUILD"])
LIMIT_S = 120  # for what has to end some time

USAGE, DATA, NO_INPUT, UNAVAILABLE, CANNOT_CREATE, TRY_AGAIN, NO_PERMISSION = 64, 65, 66, 69, 73, 75, 77
INTERRUPTED = 130


class Ran(subprocess.CompletedProcess):
    """What the program did, as text."""

    @property
    def objects(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.stdout.splitlines()]


def run(*arguments: object, stdin: str = "", **environment: str) -> Ran:
    """Runs `backhop ARGUMENTS` and waits for its end."""
    ran = subprocess.run(
        [BUILD / "backhop", *map(str, arguments)],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env={**os.environ, **environment},
        check=False,
    )
    return Ran(ran.args, ran.returncode, ran.stdout, ran.stderr)


class Case(unittest.TestCase):
    """A test case that can say what the program should have done."""

    maxDiff = None

    def ok(self, *arguments: object, **more: str) -> Ran:
        return self.ends(0, *arguments, **more)

    def ends(self, code: int, *arguments: object, **more: str) -> Ran:
        ran = run(*arguments, **more)
        self.assertEqual(ran.returncode, code, f"{ran.args}: {ran.stdout}{ran.stderr}")
        return ran
