"""backhop model: its sockets and its commands. The model itself is tested by tests/model."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

from harness import BUILD, LIMIT_S, Case

sys.path.append(str(Path(__file__).parents[2]))  # amqp.py
import amqp  # noqa: E402

FILES = 30  # file descriptors of a model that has too few


def few_files() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES))


class Model(Case):
    """A model with a control socket."""

    @contextlib.contextmanager
    def model(self, prepare: Callable[[], None] | None = None) -> Iterator[subprocess.Popen]:
        with tempfile.TemporaryDirectory() as place:
            self.control = f"{place}/control"
            with subprocess.Popen(
                [BUILD / "backhop", "model", "--control", self.control],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                preexec_fn=prepare,
            ) as process:
                try:
                    address = urlsplit(process.stdout.readline().strip())
                    self.address = (address.hostname, address.port)
                    yield process
                finally:
                    process.terminate()

    def command(self, line: str) -> str:
        with socket.socket(socket.AF_UNIX) as peer:
            peer.settimeout(LIMIT_S)
            peer.connect(self.control)
            peer.sendall(f"{line}\n".encode())
            peer.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: peer.recv(65536), b"")).decode()

    def until(self, condition: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + LIMIT_S
        while not condition():
            if time.monotonic() > end:
                self.fail(f"{what}: not within {LIMIT_S} s")
            time.sleep(0.01)

    def test_a_last_line_without_a_line_feed_is_a_command(self) -> None:
        arguments = [BUILD / "backhop", "model", "--control", "-"]
        ran = subprocess.run(arguments, input="vhost add a\nnow", capture_output=True, text=True, timeout=LIMIT_S, check=True)
        self.assertRegex(ran.stdout, r"(?s)^amqp://.*\nok\n\d+\nok\n$")

    def client_that_does_not_read(self) -> socket.socket:
        """Returns a connection that reads nothing. Its messages fill any socket."""
        client = socket.create_connection(self.address, LIMIT_S)
        self.addCleanup(client.close)
        login = amqp.encode_method(
            0, "connection.start-ok", client_properties={}, mechanism="PLAIN", response="\0guest\0guest", locale="en_US"
        )
        tune = amqp.encode_method(0, "connection.tune-ok", channel_max=10, frame_max=131072, heartbeat=0)
        client.sendall(amqp.PROTOCOL + login + tune + amqp.encode_method(0, "connection.open", vhost="/"))
        client.sendall(amqp.encode_method(1, "channel.open") + amqp.encode_method(1, "queue.declare", queue="q"))
        client.sendall(amqp.encode_method(1, "basic.consume", queue="q", no_ack=True))
        body = b"x" * 100_000
        message = amqp.encode_method(1, "basic.publish", key="q") + amqp.content(1, amqp.encode_properties({}), body)
        for _ in range(200):
            client.sendall(message)
        self.until(lambda: "q\tclassic\t0\t0\t1" in self.command("list queues"), "the messages leave their queue")
        return client

    def test_a_client_that_does_not_read_is_cut(self) -> None:
        with self.model():
            self.client_that_does_not_read()
            self.assertEqual(self.command("cut all"), "ok\n")
            self.until(lambda: self.command("list connections") == "ok\n", "the connection ends")

    def test_too_many_clients_wait_and_cost_nothing(self) -> None:
        with self.model(few_files) as model, contextlib.ExitStack() as stack:
            for _ in range(2 * FILES):
                stack.enter_context(socket.create_connection(self.address, LIMIT_S))
            files = Path(f"/proc/{model.pid}/fd")
            self.until(lambda: len(list(files.iterdir())) > 10, "clients are accepted")
            before = self.cpu_s(model)
            time.sleep(0.5)  # nothing may happen
            self.assertLess(self.cpu_s(model) - before, 0.2)
            stack.close()
            with socket.create_connection(self.address, LIMIT_S) as client:
                client.sendall(amqp.PROTOCOL)
                self.assertTrue(client.recv(1))

    def cpu_s(self, process: subprocess.Popen) -> float:
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
