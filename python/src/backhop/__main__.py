"""Runs ``backhop``, the operator's command, which this package carries: ``backhop parked list orders``.

The program is the one that the C library installs; ``backhop --help`` lists what it does.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

_UNAVAILABLE = 69  # of sysexits


def main() -> None:
    """Becomes the program, with this process's arguments; does not return.

    Ends with 69 where the package was built without the program, for want of librabbitmq, Jansson or libyaml.
    """
    program = Path(__file__).parent / "bin" / "backhop"
    if not program.exists():
        print(
            "backhop: this package was built without the command: install librabbitmq-dev, libjansson-dev and "
            "libyaml-dev, and "
            "pip install --no-binary backhop --force-reinstall backhop",
            file=sys.stderr,
        )
        sys.exit(_UNAVAILABLE)
    os.execv(program, ["backhop", *sys.argv[1:]])


if __name__ == "__main__":
    main()
