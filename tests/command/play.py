"""play.py plain|live|fast [ARG...]: runs the tests of a folder; fast: the tests of live/ without the long ones. ARGs go to unittest."""

import sys
import unittest
from pathlib import Path

from harness import Loader, TimedResult

HERE = Path(__file__).parent


class Runner(unittest.TextTestRunner):
    resultclass = TimedResult


def main(part: str, *arguments: str) -> None:
    folder = HERE / ("live" if part == "fast" else part)
    discover = ["discover", "--start-directory", str(folder), "--top-level-directory", str(HERE)]
    unittest.main(
        module=None,
        argv=["tests/command/run", *discover, *arguments],
        testLoader=Loader(is_fast=part == "fast"),
        testRunner=Runner,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
