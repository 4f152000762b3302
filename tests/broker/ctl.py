"""ctl.py SOCKET REQUEST...: has the supervisor at this Unix socket obey a request.

Exits with the status of what the request ran, or with 125.  Tests call it often, as `$BACKHOP_BROKER_CTL`: it imports
little, and runs without Python's site packages.
"""

import json
import os
import socket
import sys

FAILED = 125  # exit status


def main(address: str, *request: str) -> int:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        try:
            os.chdir(os.path.dirname(address))  # connect() takes short names only
            connection.connect(os.path.basename(address))
            socket.send_fds(connection, [json.dumps(request).encode()], [0, 1, 2])
            reply = connection.recv(1 << 20)
        except OSError as error:
            return fail(f"cannot reach the supervisor at {address}: {error}")
    if not reply:
        return fail("the supervisor ended before it answered")
    status, error_text = json.loads(reply)
    if error_text:
        fail(error_text)
    return int(status)


def fail(text: str) -> int:
    print(f"broker: {text}", file=sys.stderr, flush=True)
    return FAILED


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
