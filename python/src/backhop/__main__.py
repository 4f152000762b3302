"""Runs ``backhop``, the operator's command: ``python -m backhop parked list orders``.

The package contains the program that the C library installs. ``backhop --help`` lists its
sub-commands.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

_UNAVAILABLE = 69  # of sysexits


def main() -> None:
    """Replaces this process with the program, with the same arguments.

    Exits with 69 if the package was built without the program, because librabbitmq, Jansson,
    libyaml or libmicrohttpd was missing.
    """
    program = Path(__file__).parent / "bin" / "backhop"
    if not program.exists():
        print(
            "backhop: this package was built without the command: install librabbitmq-dev, "
            "libjansson-dev, "
            "libyaml-dev and libmicrohttpd-dev, and "
            "pip install --no-binary backhop --force-reinstall backhop",
            file=sys.stderr,
        )
        sys.exit(_UNAVAILABLE)
    os.execv(program, ["backhop", *sys.argv[1:]])


if __name__ == "__main__":
    main()
