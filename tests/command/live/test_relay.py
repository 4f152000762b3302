"""backhop relay on a broker: what it looks for, how it starts and ends, what it tells systemd."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
from pathlib import Path

from harness import BUILD, LIMIT_S, UNAVAILABLE, Case


class Relay(Case):
    def setUp(self) -> None:
        self.ns = f"relay.{os.getpid()}.{self.id().rsplit('.', 1)[-1]}"
        self.options = ["relay", "--namespace", self.ns, "--queue", f"{self.ns}.orders", "--initial", "100ms", "--jitter", "none"]

    def test_check_tells_what_is_missing_and_makes_nothing(self) -> None:
        for _ in range(2):
            self.assertIn(f"{self.ns}.", self.ends(UNAVAILABLE, *self.options, "--check").stderr)

    def test_check_tells_that_no_broker_is_there(self) -> None:
        self.ends(75, *self.options, "--check", "--uri", "amqp://127.0.0.1:1/")

    def test_it_tells_systemd_when_it_is_ready_and_ends_in_order_on_sigterm(self) -> None:
        with tempfile.TemporaryDirectory() as place, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
            path = Path(place) / "notify"
            systemd.bind(str(path))
            systemd.settimeout(LIMIT_S)
            relay = subprocess.Popen(
                [BUILD / "backhop", *self.options],
                env={**os.environ, "NOTIFY_SOCKET": str(path)},
                stderr=subprocess.PIPE,
                text=True,
            )
            try:
                self.assertIn("READY=1", systemd.recv(500).decode())
                self.assertIn(f"{self.ns}.orders", self.ends(UNAVAILABLE, *self.options, "--check").stderr)
                relay.send_signal(signal.SIGTERM)
                _, log = relay.communicate(timeout=LIMIT_S)
            finally:
                relay.kill()
            self.assertEqual(relay.returncode, 0, log)
            self.assertIn("STOPPING=1", systemd.recv(500).decode())
            self.assertIn(" connected: ", log)
            self.assertIn(f'"{self.ns}.orders" is missing', log)
            self.assertIn(" drained: ", log)

    def test_a_password_that_is_refused_ends_it_with_77(self) -> None:
        host = os.environ["AMQP_URL"].rsplit("@", 1)[-1]
        self.assertNotIn("hunter2", self.ends(77, *self.options, "--uri", f"amqp://guest:hunter2@{host}").stderr)
