"""backhop relay on a broker: what it looks for, how it starts and ends, what it tells systemd."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import tempfile
import unittest
from pathlib import Path

from harness import BUILD, LIMIT_S, UNAVAILABLE, LiveCase, backhop, broker_ctl, drain, rig


class Relay(LiveCase):
    def setUp(self) -> None:
        self.ns = f"relay.{os.getpid()}.{self.id().rsplit('.', 1)[-1]}"
        self.options = ["relay", "--namespace", self.ns, "--queue", f"{self.ns}.orders", "--initial", "100ms", "--jitter", "none"]

    @unittest.skipUnless("BACKHOP_BROKER_CTL" in os.environ, "policies are set by an administrator")
    def test_a_queue_whose_consumers_reject_needs_a_policy_and_this_command_alone(self) -> None:
        queue, attempts = f"{self.ns}.orders", 3
        rig("declare", queue, "quorum")
        consumer = subprocess.Popen([rig.program, "consume", queue, str(attempts)], stdout=subprocess.PIPE, text=True)
        try:
            assert consumer.stdout
            self.assertEqual(consumer.stdout.readline(), "\n")
            options = [*self.options, "--max-attempts", str(attempts)]
            for line in self.ok(*options, "--print-policy").stdout.splitlines():
                if line.startswith("rabbitmqctl"):
                    broker_ctl(*shlex.split(line))
            relay = backhop(*options)
            try:
                self.await_ready(f"{self.ns}.rejected", at_least=0)  # it has made what it needs
                rig("fill", queue, 1)
                told, _ = consumer.communicate(timeout=LIMIT_S)
                self.assertEqual(told.split(), ["1", "2"])
                (parked,) = drain(f"{queue}.parked", 1)
                self.assertEqual(parked.rstrip("\t").split("\t")[-1], str(attempts))
            finally:
                relay.terminate()
                self.assertEqual(relay.wait(timeout=LIMIT_S), 0)
        finally:
            consumer.kill()
            consumer.wait()

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
