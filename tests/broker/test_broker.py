#!/usr/bin/env python3
"""Tests `broker` with real brokers: python3 tests/broker/test_broker.py

BACKHOP_BROKER_VERSIONS="3.10 4.0 4.3" in the environment picks the versions (default: 4.0).
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

BROKER = str(Path(__file__).resolve().with_name("broker"))
LIMIT = 300.0  # seconds, for what may have to prepare a tree first
PRINT_STATE = """
import json, os
print(json.dumps({**os.environ, "user": os.getuid(), "directory": os.getcwd()}), flush=True)
"""
WAIT = "import sys; sys.stdin.read(); sys.exit(7)"


def environment(**changes: str) -> dict[str, str]:
    return {name: value for name, value in {**os.environ, **changes}.items() if value}


def greeting(url: str, ca_file: str) -> bytes:
    """Returns what the broker at `url` says to a client first; b"" if there is none."""
    parts = urllib.parse.urlsplit(url)
    assert parts.hostname and parts.port
    try:
        with socket.create_connection((parts.hostname, parts.port), timeout=10) as plain:
            connection = plain
            if parts.scheme == "amqps":
                context = ssl.create_default_context(cafile=ca_file)
                connection = context.wrap_socket(plain, server_hostname=parts.hostname)
            with connection, connection.makefile("rb") as stream:
                connection.sendall(b"AMQP\x00\x00\x09\x01")
                return stream.read(11)[7:]
    except ConnectionError:
        return b""


def processes_of(broker: dict[str, Any]) -> list[int]:
    """Returns the IDs of RabbitMQ's processes (those that this user may look at)."""
    mark = f"RABBITMQ_NODE_PORT={urllib.parse.urlsplit(broker['AMQP_URL']).port}\0".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark in path.read_bytes():
                found.append(int(path.parent.name))
    return found


def children_of(parent: int) -> list[int]:
    children = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(path.read_text().rpartition(")")[2].split()[1]) == parent:
                children.append(int(path.parent.name))
    return children


def ctl(broker: dict[str, Any], *request: str) -> subprocess.CompletedProcess[str]:
    command = [broker["BACKHOP_BROKER_CTL"], *request]
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)


class Tests:
    """The tests, for one version of RabbitMQ."""

    version = ""
    START = b"\x00\x0a\x00\x0a"  # the method Connection.Start

    def setUp(self: Any) -> None:
        self.directory = tempfile.mkdtemp(prefix="test-broker-")
        self.addCleanup(shutil.rmtree, self.directory)
        os.chmod(self.directory, 0o755)
        self.settings = environment(AMQP_URL="", TMPDIR=self.directory)

    def run_broker(self: Any, *command: str, **changes: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [BROKER, "run", self.version, "--", *command],
            env={**self.settings, **changes},
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )

    def launch(self: Any, *command: str, **changes: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [BROKER, "run", self.version, "--", *command],
            env={**self.settings, **changes},
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    @contextlib.contextmanager
    def started(self: Any) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
        """Runs the tool with a command that waits; yields the tool and the command's state."""
        with self.launch(sys.executable, "-c", PRINT_STATE + WAIT) as tool:
            assert tool.stdout
            broker = json.loads(tool.stdout.readline())
            try:
                yield tool, broker
            finally:
                tool.terminate()

    def eventually(self: Any, condition: Callable[[], bool], message: str) -> None:
        limit = time.monotonic() + 30
        while not condition():
            self.assertLess(time.monotonic(), limit, message)
            time.sleep(0.02)

    def assert_answering(self: Any, broker: dict[str, Any]) -> None:
        for url in (broker["AMQP_URL"], broker["AMQPS_URL"]):
            self.assertEqual(greeting(url, broker["BACKHOP_CA_FILE"]), self.START, url)

    def assert_gone(self: Any, broker: dict[str, Any], files_too: bool = True) -> None:
        self.assertEqual(processes_of(broker), [])
        self.assertEqual(greeting(broker["AMQP_URL"], ""), b"")
        mounts = Path("/proc/self/mountinfo").read_text()
        self.assertNotIn(self.directory, mounts)
        self.assertNotIn(f"/trees/{self.version}", mounts)
        if files_too:
            self.assertEqual(os.listdir(self.directory), [])

    def test_command_gets_a_broker(self: Any) -> None:
        with self.started() as (tool, broker):
            self.assert_answering(broker)
            self.assertEqual(broker["BACKHOP_BROKER_VERSION"], self.version)
            self.assertEqual(urllib.parse.urlsplit(broker["AMQP_URL"]).username, "guest")
            self.assertEqual(urllib.parse.urlsplit(broker["AMQP_URL"]).hostname, "127.0.0.1")
            self.assertEqual(urllib.parse.urlsplit(broker["AMQPS_URL"]).hostname, "localhost")
            self.assertEqual(broker["PATH"], os.environ["PATH"])
            booted = ctl(broker, "rabbitmqctl", "--silent", "eval", "rabbit:is_booted().")
            self.assertEqual((booted.stdout, booted.returncode), ("true\n", 0), booted.stderr)
            version = ctl(broker, "rabbitmqctl", "version").stdout
            self.assertTrue(version.startswith(f"{self.version}."), version)
            self.assertEqual(broker["user"], os.getuid())
            self.assertEqual(broker["directory"], os.getcwd())
            tool.communicate()
            self.assertEqual(tool.returncode, 7)
            self.assert_gone(broker)

    def test_exit_status(self: Any) -> None:
        for command, status in (("exit 3", 3), ("kill -KILL $$", 137), ("exec /nowhere", 127)):
            done = self.run_broker("sh", "-c", command, AMQP_URL="amqp://elsewhere")
            self.assertEqual(done.returncode, status, command)
        done = self.run_broker("/nowhere", AMQP_URL="amqp://elsewhere")
        self.assertEqual(done.returncode, 127)
        self.assertIn("/nowhere", done.stderr)

    def test_broker_of_the_user_is_used(self: Any) -> None:
        done = self.run_broker(sys.executable, "-c", PRINT_STATE, AMQP_URL="amqp://mine")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("AMQP_URL is set", done.stderr)
        broker = json.loads(done.stdout)
        self.assertEqual(broker["AMQP_URL"], "amqp://mine")
        self.assertNotIn("BACKHOP_BROKER_CTL", broker)

    def test_nothing_is_left_when_the_tool_is_terminated(self: Any) -> None:
        with self.started() as (tool, broker):
            self.assert_answering(broker)
            tool.terminate()
            self.assertEqual(tool.wait(30), 128 + signal.SIGTERM)
            self.assertEqual(tool.stdout.read(), "")  # the command has ended too
            self.assert_gone(broker)

    def test_interrupt_ends_all_processes_of_the_command(self: Any) -> None:
        command = ("sh", "-c", "sleep 1000 & echo started; wait")
        with self.launch(*command, AMQP_URL="amqp://elsewhere") as tool:
            self.assertEqual(tool.stdout.readline(), "started\n")
            tool.send_signal(signal.SIGINT)
            self.assertEqual(tool.stdout.read(), "")  # which sleep had open
            self.assertEqual(tool.wait(30), 128 + signal.SIGINT)

    def test_nothing_is_left_when_the_tool_is_killed(self: Any) -> None:
        with self.started() as (tool, broker):
            tool.kill()
            tool.wait()
            self.eventually(lambda: not os.listdir(self.directory), "its files are there")
            self.assertEqual(tool.stdout.read(), "")
            self.assert_gone(broker)

    @unittest.skipUnless(os.geteuid() == 0, "only root can kill the supervisor")
    def test_nothing_runs_when_the_supervisor_is_killed(self: Any) -> None:
        with self.started() as (tool, broker):
            self.assertGreaterEqual(len(processes_of(broker)), 3)
            (supervisor,) = (
                child
                for child in children_of(tool.pid)
                if b"supervisor.py" in Path(f"/proc/{child}/cmdline").read_bytes()
            )
            os.kill(supervisor, signal.SIGKILL)
            self.eventually(lambda: not processes_of(broker), "RabbitMQ still runs")
            self.assertEqual(ctl(broker, "start").returncode, 125)
            tool.communicate()
            self.assert_gone(broker, files_too=False)

    def test_two_side_by_side(self: Any) -> None:
        with self.started() as (_, one), self.started() as (_, two):
            self.assertNotEqual(one["AMQP_URL"], two["AMQP_URL"])
            self.assertEqual(ctl(one, "rabbitmqctl", "add_vhost", "x").returncode, 0)
            self.assertNotIn("x", ctl(two, "rabbitmqctl", "list_vhosts").stdout.split())
            self.assert_answering(one)
            self.assert_answering(two)

    def test_restart_keeps_the_data(self: Any) -> None:
        with self.started() as (_, broker):
            self.assertEqual(ctl(broker, "rabbitmqctl", "add_vhost", "x").returncode, 0)
            self.assertEqual(ctl(broker, "save").returncode, 0)
            for way in ("kill", "stop"):
                self.assertEqual(ctl(broker, way).returncode, 0)
                self.assert_gone(broker, files_too=False)
                failed = ctl(broker, "rabbitmqctl", "list_vhosts")
                self.assertNotEqual(failed.returncode, 0, failed.stdout)
                started = ctl(broker, "start")
                self.assertEqual(started.returncode, 0, started.stderr)
                self.assert_answering(broker)
                self.assertIn("x", ctl(broker, "rabbitmqctl", "list_vhosts").stdout.split())
            self.assertEqual(ctl(broker, "start").returncode, 125)
            self.assertIn("usage", ctl(broker, "dance").stderr)

    def test_alarm(self: Any) -> None:
        with self.started() as (_, broker):
            for order, is_set in (("set-alarm", True), ("clear-alarm", False)):
                self.assertEqual(ctl(broker, order).returncode, 0)
                alarms = ctl(broker, "rabbitmqctl", "eval", "rabbit_alarm:get_alarms().").stdout
                self.assertEqual("{resource_limit,memory," in alarms, is_set, alarms)

    @unittest.skipUnless(os.geteuid() == 0, "only root can remove the files of a failed start")
    def test_failed_start_shows_the_log(self: Any) -> None:
        tree = Path(self.directory, "trees", self.version)  # one without RabbitMQ in it
        for name in ("etc", "proc", "dev", "tmp", "var/lib/rabbitmq"):
            (tree / name).mkdir(parents=True)
        (tree / "etc/passwd").write_text("rabbitmq:x:101:101::/:/bin/sh\n")
        done = self.run_broker("true", BACKHOP_CACHE=self.directory)
        self.assertEqual(done.returncode, 125)
        self.assertIn(f"RabbitMQ {self.version} did not start: it ended", done.stderr)
        self.assertIn("rabbitmq-server", done.stderr)  # from the log

    def test_unknown_version(self: Any) -> None:
        self.version = "1.0"
        done = self.run_broker("true")
        self.assertEqual(done.returncode, 125)
        self.assertIn("no tree for RabbitMQ 1.0", done.stderr)


signal.signal(signal.SIGINT, signal.default_int_handler)  # a script's background jobs ignore it, and so would the tool

for each in os.environ.get("BACKHOP_BROKER_VERSIONS", "4.0").split():
    name = f"Broker_{each.replace('.', '_')}"
    globals()[name] = type(name, (Tests, unittest.TestCase), {"version": each})

if __name__ == "__main__":
    unittest.main(verbosity=2)
