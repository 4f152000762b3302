"""backhop relay on a broker: its checks, its start and end, and its notices to systemd."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import tempfile
import unittest
from collections.abc import Iterator
from pathlib import Path

from harness import BUILD, LIMIT_S, UNAVAILABLE, LiveCase, broker_ctl, drain, long, rig

PAGE = Path(__file__).parents[3] / "examples/go/README.md"


@contextlib.contextmanager
def relaying(*options: object) -> Iterator[list[dict]]:
    """Runs `backhop relay --json`, connected. After its end the list has all its events, in order."""
    command = [str(BUILD / "backhop"), "relay", "--json", *map(str, options)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as relay:
        try:
            assert relay.stdout
            events: list[dict] = []
            while not events or events[-1]["event"] != "connected":
                events.append(json.loads(relay.stdout.readline()))
            yield events
        finally:
            relay.terminate()
            events += map(json.loads, relay.communicate(timeout=LIMIT_S)[0].splitlines())
    assert (relay.returncode, events[-1]["event"]) == (0, "drained"), events


class Relay(LiveCase):
    def setUp(self) -> None:
        self.ns = f"relay.{os.getpid()}.{self.id().rsplit('.', 1)[-1]}"
        self.options = ["--namespace", self.ns, "--queue", f"{self.ns}.orders", "--initial", "100ms", "--jitter", "none"]

    @long
    @unittest.skipUnless("BACKHOP_BROKER_CTL" in os.environ, "policies are set by an administrator")
    def test_a_queue_whose_consumers_reject_needs_a_policy_and_this_command_alone(self) -> None:
        queue, attempts = f"{self.ns}.orders", 3
        rig("declare", queue, "quorum")
        consumer = subprocess.Popen([rig.program, "consume", queue, str(attempts)], stdout=subprocess.PIPE, text=True)
        try:
            assert consumer.stdout
            self.assertEqual(consumer.stdout.readline(), "\n")
            options = [*self.options, "--max-attempts", str(attempts)]
            for line in self.ok("relay", *options, "--print-policy").stdout.splitlines():
                if line.startswith("rabbitmqctl"):
                    broker_ctl(*shlex.split(line))
            with relaying(*options):
                rig("fill", queue, 1)
                told, _ = consumer.communicate(timeout=LIMIT_S)
                self.assertEqual(told.split(), ["1", "2"])
                (parked,) = drain(f"{queue}.parked", 1)
                self.assertEqual(parked.rstrip("\t").split("\t")[-1], str(attempts))
        finally:
            consumer.kill()
            consumer.wait()

    def test_its_log_as_json_is_an_object_an_event_and_settings_of_the_file_hold(self) -> None:
        orders, short = f"{self.ns}.orders", f"{self.ns}.short"
        config = {"namespace": self.ns, "expired": "retry", "policy": {"initial": "100ms", "jitter": "none"},
                  "queues": {orders: {"max-attempts": 2}, short: {"max-attempts": 2}}}
        with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
            file.write(json.dumps(config))
            file.flush()
            rig("declare", orders, "quorum", f"x-dead-letter-exchange={self.ns}.rejected")
            rig("declare", short, "quorum", f"x-dead-letter-exchange={self.ns}.rejected", "x-message-ttl=1")
            with relaying("-c", file.name, "--verbose") as events:
                for queue in (orders, short):
                    rig("fill", queue, 1)
                for _ in range(2):
                    self.await_ready(orders, at_least=1)
                    rig("reject", orders, 1)
                self.await_ready(f"{orders}.parked", at_least=1)
                self.await_ready(f"{short}.parked", at_least=1)
        for queue in (orders, short):
            told = [(each["event"], each["id"], each["attempts"], each.get("delay_ms"), each.get("reason"))
                    for each in events if each.get("queue") == queue and each["event"] in ("retried", "parked")]
            self.assertEqual(told, [("retried", "m000000", 1, 100, None), ("parked", "m000000", 2, None, "exhausted")])

    @long
    @unittest.skipUnless("BACKHOP_BROKER_CTL" in os.environ, "permissions are set by an administrator")
    def test_the_permissions_that_its_page_names_are_enough(self) -> None:
        (permissions,) = re.findall("^ *(rabbitmqctl set_permissions relay .*)", PAGE.read_text(), re.MULTILINE)
        broker_ctl("rabbitmqctl", "add_user", "relay", "secret")
        self.addCleanup(broker_ctl, "rabbitmqctl", "delete_user", "relay")
        broker_ctl(*shlex.split(permissions))
        host = os.environ["AMQP_URL"].rsplit("@", 1)[-1]
        queues = ["email-queue", "webhook.acme"]
        uri = f"amqp://relay:secret@{host}"
        for queue in queues:
            rig("declare", queue, "quorum", "x-dead-letter-exchange=backhop.rejected")
        with relaying("-q", queues[0], "-q", "webhook.*", "-u", uri, "--initial", "100ms", "--max-attempts", 2):
            for queue in queues:
                rig("fill", queue, 1)
                for _ in range(2):
                    self.await_ready(queue, at_least=1)
                    rig("reject", queue, 1)
                self.assertEqual(len(drain(f"{queue}.parked", 1)), 1)

    def test_an_own_kind_replaces_the_kind_for_all(self) -> None:
        own = f"{self.ns}.own"
        config = {"namespace": self.ns, "policy": {"kind": "steps", "steps": ["5s", "6s"], "jitter": "none"},
                  "queues": {own: {"kind": "fixed", "initial": "100ms"}}}
        rig("declare", own, "quorum", f"x-dead-letter-exchange={self.ns}.rejected")
        with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
            file.write(json.dumps(config))
            file.flush()
            with relaying("-c", file.name, "--verbose") as events:
                rig("fill", own, 1)
                rig("reject", own, 1)
                self.await_ready(own, at_least=1)
        self.assertEqual([each["delay_ms"] for each in events if each["event"] == "retried"], [100])

    def test_check_tells_what_is_missing_and_makes_nothing(self) -> None:
        for _ in range(2):
            self.assertIn(f"{self.ns}.", self.ends(UNAVAILABLE, "relay", *self.options, "--check").stderr)

    def test_check_tells_that_no_broker_is_there(self) -> None:
        self.ends(75, "relay", *self.options, "--check", "--uri", "amqp://127.0.0.1:1/")

    def test_it_tells_systemd_when_it_is_ready_and_ends_in_order_on_sigterm(self) -> None:
        with tempfile.TemporaryDirectory() as place, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
            path = Path(place) / "notify"
            systemd.bind(str(path))
            systemd.settimeout(LIMIT_S)
            relay = subprocess.Popen(
                [BUILD / "backhop", "relay", *self.options],
                env={**os.environ, "NOTIFY_SOCKET": str(path)},
                stderr=subprocess.PIPE,
                text=True,
            )
            try:
                self.assertIn("READY=1", systemd.recv(500).decode())
                self.assertIn(f"{self.ns}.orders", self.ends(UNAVAILABLE, "relay", *self.options, "--check").stderr)
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
        self.assertNotIn("hunter2", self.ends(77, "relay", *self.options, "--uri", f"amqp://guest:hunter2@{host}").stderr)
