"""play.py PROFILE [ARG...]: runs the tests of a profile. ARGs go to unittest.

plain      the tests of plain/, without a broker, but the long ones
fast       the tests of live/ that are short and need no management API
managed    the short ones that need it
live       all tests of live/, and the long ones of plain/
"""

import sys
import unittest
from pathlib import Path

from harness import Loader, TimedResult

HERE = Path(__file__).parent
PROFILES = {
    "plain": lambda is_live, is_long, is_managed: not is_live and not is_long,
    "fast": lambda is_live, is_long, is_managed: is_live and not is_long and not is_managed,
    "managed": lambda is_live, is_long, is_managed: is_live and not is_long and is_managed,
    "live": lambda is_live, is_long, is_managed: is_live or is_long,
}


class Runner(unittest.TextTestRunner):
    resultclass = TimedResult


def main(profile: str, *arguments: str) -> None:
    discover = ["discover", "--start-directory", str(HERE), "--top-level-directory", str(HERE)]
    unittest.main(
        module=None,
        argv=["tests/command/run", *discover, *arguments],
        testLoader=Loader(PROFILES[profile]),
        testRunner=Runner,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
