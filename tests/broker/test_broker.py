#!/usr/bin/env python3
"""Tests `broker` with real brokers: python3 tests/broker/test_broker.py

BACKHOP_BROKER_VERSIONS="3.8 3.10 4.0 4.3" in the environment picks the versions (default: 4.0).
Tests of the tool alone, which no version of RabbitMQ changes, run with the last of them.
Each test has a limit, and reports its stack when that is over.
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
from typing import Any, NoReturn

import supervisor

BROKER = str(Path(__file__).resolve().with_name("broker"))
LIMIT = 300.0  # seconds, for tests that may have to prepare a tree first
TEST_LIMIT = 600  # seconds, for one test
MANY = 1000  # seconds that a command sleeps which is not to end by itself
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
    """Returns the IDs of RabbitMQ's processes, as far as this user may look at them."""
    found = []
    for url in broker.get("AMQP_URLS", broker["AMQP_URL"]).split():
        node = urllib.parse.urlsplit(url)
        marks = {f"RABBITMQ_NODE_PORT={node.port}", f"ERL_EPMD_ADDRESS={node.hostname}"}
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if marks <= set(path.read_text(errors="replace").split("\0")):
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


def of_the_tool(test: Any) -> Any:
    """Marks a test that runs with the last version alone."""
    test.of_the_tool = True
    return test


class Tests:
    """The tests, for one version of RabbitMQ."""

    version = ""
    action: tuple[str, ...] = ("run",)
    START = b"\x00\x0a\x00\x0a"  # the method Connection.Start

    def setUp(self: Any) -> None:
        def end(*_: object) -> NoReturn:
            raise TimeoutError(f"{self.id()} still waits here after {TEST_LIMIT} s")

        signal.signal(signal.SIGALRM, end)
        signal.alarm(TEST_LIMIT)
        self.addCleanup(signal.alarm, 0)
        self.directory = tempfile.mkdtemp(prefix="test-broker-")
        self.addCleanup(shutil.rmtree, self.directory)
        os.chmod(self.directory, 0o755)
        self.settings = environment(AMQP_URL="", TMPDIR=self.directory)

    def run_broker(self: Any, *command: str, **changes: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [BROKER, *self.action, self.version, "--", *command],
            env={**self.settings, **changes},
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )

    @contextlib.contextmanager
    def launch(
        self: Any, *command: str, ignoring: signal.Signals | None = None, **changes: str
    ) -> Iterator[subprocess.Popen[str]]:
        """Runs the tool, which ignores a signal from above; kills it if the test fails."""

        def ignore() -> None:
            if ignoring:
                signal.signal(ignoring, signal.SIG_IGN)

        tool = subprocess.Popen(
            [BROKER, *self.action, self.version, "--", *command],
            env={**self.settings, **changes},
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            preexec_fn=ignore,
        )
        try:
            with tool:
                yield tool
        except BaseException:
            tool.kill()
            raise

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
            booted = ctl(broker, "eval", "rabbit:is_booted().")
            self.assertEqual((booted.stdout, booted.returncode), ("true\n", 0), booted.stderr)
            version = ctl(broker, "rabbitmqctl", "version").stdout
            self.assertTrue(version.startswith(f"{self.version}."), version)
            self.assertEqual(broker["user"], os.getuid())
            self.assertEqual(broker["directory"], os.getcwd())
            self.assert_alarm_can_be_set(broker)
            tool.communicate(timeout=60)
            self.assertEqual(tool.returncode, 7)
            self.assert_gone(broker)

    def assert_alarm_can_be_set(self: Any, broker: dict[str, Any]) -> None:
        for order, is_set in (("set-alarm", True), ("clear-alarm", False)):
            self.assertEqual(ctl(broker, order).returncode, 0)
            alarms = ctl(broker, "eval", "rabbit_alarm:get_alarms().").stdout
            self.assertEqual("resource_limit, memory" in alarms, is_set, alarms)

    @of_the_tool
    def test_exit_status(self: Any) -> None:
        for command, status in (("exit 3", 3), ("kill -KILL $$", 137), ("exec /nowhere", 127)):
            done = self.run_broker("sh", "-c", command, AMQP_URL="amqp://elsewhere")
            self.assertEqual(done.returncode, status, command)
        done = self.run_broker("/nowhere", AMQP_URL="amqp://elsewhere")
        self.assertEqual(done.returncode, 127)
        self.assertIn("/nowhere", done.stderr)

    @of_the_tool
    def test_broker_of_the_user_is_used(self: Any) -> None:
        done = self.run_broker(sys.executable, "-c", PRINT_STATE, AMQP_URL="amqp://mine")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("AMQP_URL is set", done.stderr)
        broker = json.loads(done.stdout)
        self.assertEqual(broker["AMQP_URL"], "amqp://mine")
        self.assertNotIn("BACKHOP_BROKER_CTL", broker)

    @of_the_tool
    def test_nothing_is_left_when_the_tool_is_terminated(self: Any) -> None:
        with self.started() as (tool, broker):
            self.assert_answering(broker)
            tool.terminate()
            self.assert_ends(tool, 128 + signal.SIGTERM)
            self.assert_gone(broker)

    def assert_ends(self: Any, tool: subprocess.Popen[str], status: int) -> None:
        """The tool and all that has its standard output open end soon."""
        output, _ = tool.communicate(timeout=60)
        self.assertEqual((output, tool.returncode), ("", status))

    @of_the_tool
    def test_interrupt_ends_all_processes_of_the_command(self: Any) -> None:
        command = ("sh", "-c", f"sleep {MANY} & echo started; wait")
        with self.launch(*command, AMQP_URL="amqp://elsewhere") as tool:
            self.assertEqual(tool.stdout.readline(), "started\n")
            tool.send_signal(signal.SIGINT)
            self.assert_ends(tool, 128 + signal.SIGINT)

    @of_the_tool
    def test_the_end_ends_processes_that_ignore_signals_and_have_left_the_group(self: Any) -> None:
        script = f"trap '' INT TERM HUP; setsid sh -c 'sleep {MANY} & sleep {MANY}' & (sleep {MANY} &) ; echo started; wait"
        for sent, ignoring in ((signal.SIGINT, None), (signal.SIGTERM, signal.SIGINT)):
            with self.subTest(sent=sent, ignoring=ignoring):
                command = ("sh", "-c", script)
                with self.launch(*command, ignoring=ignoring, AMQP_URL="amqp://elsewhere") as tool:
                    self.assertEqual(tool.stdout.readline(), "started\n")
                    tool.send_signal(sent)
                    self.assert_ends(tool, 128 + sent)

    @of_the_tool
    def test_what_a_command_leaves_behind_is_ended(self: Any) -> None:
        command = ("sh", "-c", f"setsid sleep {MANY} & sleep {MANY} & exit 3")
        with self.launch(*command, AMQP_URL="amqp://elsewhere") as tool:
            self.assert_ends(tool, 3)

    @of_the_tool
    def test_what_loses_its_parent_vanishes_when_it_ends(self: Any) -> None:
        script = "sh -c 'sleep 0.2 & echo $!' | { read pid; while kill -0 $pid; do sleep 0.1; done; } 2>/dev/null"
        with self.launch("sh", "-c", script, AMQP_URL="amqp://elsewhere") as tool:
            self.assert_ends(tool, 0)

    def test_nothing_is_left_when_the_tool_is_killed(self: Any) -> None:
        script = f"setsid sleep {MANY} & exec {sys.executable} -c '{PRINT_STATE + WAIT}'"
        with self.launch("sh", "-c", script) as tool:
            broker = json.loads(tool.stdout.readline())
            tool.kill()
            self.assertEqual(tool.communicate(timeout=60)[0], "")
            self.eventually(lambda: not os.listdir(self.directory), "its files are there")
            self.assert_gone(broker)

    @of_the_tool
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
            tool.communicate(timeout=60)
            self.assert_gone(broker, files_too=False)
            self.assertEqual(self.run_broker("true").returncode, 0)
            self.assertEqual(os.listdir(self.directory), [])  # the next one removed them

    @of_the_tool
    def test_two_side_by_side(self: Any) -> None:
        with self.started() as (_, one), self.started() as (_, two):
            self.assertNotEqual(one["AMQP_URL"], two["AMQP_URL"])
            self.assertEqual(ctl(one, "rabbitmqctl", "add_vhost", "x").returncode, 0)
            self.assertNotIn("x", ctl(two, "rabbitmqctl", "list_vhosts").stdout.split())
            self.assert_answering(one)
            self.assert_answering(two)

    def test_restart_keeps_the_data(self: Any) -> None:
        self.assert_restart_keeps_the_data(memory="1")

    @of_the_tool
    def test_restart_keeps_the_data_on_a_disk(self: Any) -> None:
        self.assert_restart_keeps_the_data(memory="0")

    def assert_restart_keeps_the_data(self: Any, memory: str) -> None:
        self.settings["BACKHOP_BROKER_MEMORY"] = memory
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

    @of_the_tool
    @unittest.skipUnless(os.geteuid() == 0, "only root can remove the files of a failed start")
    def test_failed_start_shows_the_log(self: Any) -> None:
        tree = Path(self.directory, "trees", self.version)  # one without RabbitMQ in it
        for name in ("etc", "proc", "dev", "tmp", "mnt", "var/lib/rabbitmq", "usr/lib/rabbitmq/lib/rabbitmq_server-0/plugins"):
            (tree / name).mkdir(parents=True)
        (tree / "etc/hosts").write_text("")
        (tree / "etc/passwd").write_text("rabbitmq:x:101:101::/:/bin/sh\n")
        done = self.run_broker("true", BACKHOP_CACHE=self.directory)
        self.assertEqual(done.returncode, 125)
        self.assertIn(f"RabbitMQ {self.version} did not start: it ended", done.stderr)
        self.assertIn("rabbitmq-server", done.stderr)  # from the log

    @of_the_tool
    @unittest.skipUnless(os.geteuid() == 0, "only root can read and remove the files that are kept")
    def test_files_in_memory_are_on_the_disk_where_they_are_kept(self: Any) -> None:
        self.action = [*self.action[:1], "--keep", *self.action[1:]]
        # RabbitMQ keeps log lines for up to two seconds before it writes them.
        read = 'element(2, file:read_file("/var/lib/rabbitmq/log/rabbit@localhost.log"))'
        match = f'binary:match({read}, <<"Starting RabbitMQ">>).'
        wait = f"until \"$BACKHOP_BROKER_CTL\" eval '{match}' | grep -q '{{'; do sleep 0.1; done"
        done = self.run_broker("sh", "-c", wait, BACKHOP_BROKER_MEMORY="1")
        self.assertEqual(done.returncode, 0, done.stderr)
        (log,) = Path(self.directory).glob("backhop-broker-*/home/log/rabbit@localhost.log")
        self.assertIn("Starting RabbitMQ", log.read_text())
        self.assertNotIn(self.directory, Path("/proc/mounts").read_text())

    def test_the_management_api_is_there_where_it_is_wanted(self: Any) -> None:
        program = "import os, urllib.request as r; u = os.environ['BACKHOP_MANAGEMENT_URL'].replace('guest:guest@', '');"
        program += "a = r.HTTPBasicAuthHandler(r.HTTPPasswordMgrWithDefaultRealm());"
        program += "a.add_password(None, u, 'guest', 'guest'); print(r.build_opener(a).open(u + '/api/overview').status)"
        done = self.run_broker(sys.executable, "-c", program, BACKHOP_MANAGEMENT="1")
        self.assertEqual((done.stdout, done.returncode), ("200\n", 0), done.stderr)

    @of_the_tool
    def test_a_plugin_that_is_none_is_named(self: Any) -> None:
        named = "/nowhere/rabbitmq_delayed_message_exchange-4.0.2.ez"
        done = self.run_broker("true", BACKHOP_DELAYED_PLUGIN=named)
        self.assertEqual(done.returncode, 125)
        self.assertIn(f"BACKHOP_DELAYED_PLUGIN has {named}: name files as ", done.stderr)

    @of_the_tool
    def test_unknown_version(self: Any) -> None:
        self.version = "1.0"
        done = self.run_broker("true")
        self.assertEqual(done.returncode, 125)
        self.assertIn("no tree for RabbitMQ 1.0", done.stderr)


class ClusterTests(Tests):
    """The behaviour of a cluster of three nodes, for one version of RabbitMQ."""

    action = ("cluster", "3")
    DECLARE = """
        A = [{<<"x-queue-type">>, longstr, <<"quorum">>}],
        rabbit_amqqueue:declare(rabbit_misc:r(<<"/">>, queue, <<"q">>), true, false, A, none, <<"x">>), ok."""

    def obeyed(self: Any, broker: dict[str, Any], *request: str) -> str:
        done = ctl(broker, *request)
        self.assertEqual(done.returncode, 0, f"{request}: {done.stderr}")
        return done.stdout.strip()

    def running_nodes(self: Any, broker: dict[str, Any], at: int) -> list[str]:
        asked = ("rabbitmqctl", "--silent", "cluster_status", "--formatter=json")
        return sorted(json.loads(self.obeyed(broker, str(at), *asked))["running_nodes"])

    def assert_cluster_gone(self: Any, broker: dict[str, Any]) -> None:
        network = broker["AMQP_URL"].split("@")[1].rpartition(".")[0].split(".")[2]
        interface = Path(f"/sys/class/net/backhop{network}")
        self.eventually(lambda: not interface.exists(), "its network is there")
        # The network is the supervisor's. After a SIGKILL, the kernel may end the nodes a moment later.
        self.eventually(lambda: not processes_of(broker), "processes of its nodes are there")

    def test_nodes_are_killed_stopped_paused_and_started(self: Any) -> None:
        all_of_them = [f"rabbit@node{number}" for number in (1, 2, 3)]
        with self.started() as (tool, broker):
            urls = broker["AMQP_URLS"].split()
            self.assertEqual((len(set(urls)), broker["AMQP_URL"]), (3, urls[0]))
            self.assert_answering(broker)
            self.assertEqual(self.running_nodes(broker, 2), all_of_them)
            for way, back in (("kill", "start"), ("stop", "start"), ("pause", "continue")):
                self.obeyed(broker, "2", way)
                if way != "pause":
                    self.eventually(lambda: self.running_nodes(broker, 1) == all_of_them[::2], way)
                    self.assertEqual(greeting(urls[1], ""), b"")
                self.assertEqual(greeting(urls[2], ""), self.START)
                self.obeyed(broker, "2", back)
                self.assertEqual(greeting(urls[1], ""), self.START)
                self.eventually(lambda: self.running_nodes(broker, 3) == all_of_them, back)
            if float(self.version) >= 4.3:  # with Mnesia each of them may wait for the others, for ever
                self.obeyed(broker, "kill")
                self.obeyed(broker, "start")
                self.eventually(lambda: self.running_nodes(broker, 1) == all_of_them, "all killed")
            tool.communicate(timeout=60)
            self.assertEqual(tool.returncode, 7)
            self.assert_cluster_gone(broker)

    def test_queues_move(self: Any) -> None:
        with self.started() as (_, broker):
            self.obeyed(broker, "eval", self.DECLARE)
            for number in ("3", "1", "2"):
                self.obeyed(broker, "move-leader", "q", number)
                self.eventually(lambda to=number: self.obeyed(broker, "leader", "q") == to, number)
            for order, count in (("delete-member", 2), ("add-member", 3)):
                self.obeyed(broker, order, "q", "3")
                text = self.obeyed(broker, "rabbitmqctl", "--silent", "list_queues", "members")
                self.assertEqual(text.count("rabbit@"), count, text)
            self.obeyed(broker, "2", "drain")
            self.eventually(lambda: self.obeyed(broker, "leader", "q") != "2", "drain")
            self.obeyed(broker, "2", "revive")
            self.obeyed(broker, "rebalance")

    def test_partition_and_heal(self: Any) -> None:
        with self.started() as (_, broker):
            self.obeyed(broker, "eval", self.DECLARE)
            self.obeyed(broker, "move-leader", "q", "3")
            urls = broker["AMQP_URLS"].split()
            self.obeyed(broker, "partition", "1,2", "3")
            self.eventually(lambda: self.obeyed(broker, "leader", "q") in ("1", "2"), "cut off")
            for url in urls[:2]:  # clients reach them; node 3 may pause itself
                self.assertEqual(greeting(url, ""), self.START)
            self.obeyed(broker, "heal")
            self.eventually(lambda: len(self.running_nodes(broker, 1)) == 3, "healed")
            for wrong in (("1", "2"), ("1,2,3",), ("1,2", "2,3"), ("1,2", "4")):
                self.assertIn("usage", ctl(broker, "partition", *wrong).stderr)

    @of_the_tool
    def test_nothing_is_left_of_two_clusters_that_are_killed(self: Any) -> None:
        with self.started() as (one_tool, one), self.started() as (two_tool, two):
            self.assertFalse(set(one["AMQP_URLS"].split()) & set(two["AMQP_URLS"].split()))
            self.assert_answering(one)
            self.assert_answering(two)
            if os.geteuid() == 0:
                for child in children_of(one_tool.pid):
                    if b"supervisor.py" in Path(f"/proc/{child}/cmdline").read_bytes():
                        os.kill(child, signal.SIGKILL)
            for tool in (one_tool, two_tool):
                tool.kill()
                tool.communicate(timeout=60)
            for each in (one, two):
                self.assert_cluster_gone(each)


CLEAN_UP = """
import select, supervisor
print("begins", flush=True)
while not select.select([0], [], [], 0)[0]:
    supervisor.clean_up()
supervisor.clean_up()
"""


class DirectoryTests(unittest.TestCase):
    """A broker's directory, without the broker."""

    def test_no_broker_that_starts_removes_the_directory_of_another_one_that_starts(self) -> None:
        with tempfile.TemporaryDirectory(prefix="test-broker-") as place:
            others = [
                subprocess.Popen(
                    [sys.executable, "-c", CLEAN_UP],
                    env=environment(TMPDIR=place, PYTHONPATH=os.path.dirname(BROKER)),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                )
                for _ in range(3)
            ]
            kept, tempfile.tempdir = tempfile.tempdir, place
            try:
                for each in others:
                    assert each.stdout and each.stdout.readline() == b"begins\n"
                for _ in range(2000):
                    directory, lock = supervisor.new_directory()
                    (directory / "ctl").touch()
                    lock.close()  # now any of them may
            finally:
                tempfile.tempdir = kept
                for each in others:
                    each.communicate(timeout=60)
            self.assertEqual([each.returncode for each in others], [0] * len(others))
            self.assertEqual(os.listdir(place), [])


signal.signal(
    signal.SIGINT, signal.default_int_handler
)  # a script's background jobs ignore it, and so would the tool

versions = os.environ.get("BACKHOP_BROKER_VERSIONS", "4.0").split()


def left_out(tests: type, version: str) -> dict[str, None]:
    """Returns what hides the tests of the tool in a class of a version that is not the last one."""
    return {} if version == versions[-1] else {name: None for name, test in vars(tests).items() if hasattr(test, "of_the_tool")}


for each in versions:
    name = each.replace(".", "_")
    globals()[f"Broker_{name}"] = type(
        f"Broker_{name}", (Tests, unittest.TestCase), {**left_out(Tests, each), "version": each}
    )
    if each not in (versions[0], versions[-1]):  # clusters are slow: the oldest and the newest version
        continue
    of_cluster = {test: None for test in vars(Tests) if test.startswith("test_")}  # not again
    globals()[f"Cluster_{name}"] = type(
        f"Cluster_{name}",
        (ClusterTests, unittest.TestCase),
        {**of_cluster, **left_out(ClusterTests, each), "version": each},
    )

if __name__ == "__main__":
    unittest.main(verbosity=2)
