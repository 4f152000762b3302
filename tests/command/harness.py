"""Helpers of the command's tests: they run the program as a user does."""

from __future__ import annotations

import contextlib
import fcntl
import http.server
import json
import os
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import termios
import threading
import time
import unittest
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from proxy import Proxy

BUILD = Path(os.environ["BACKHOP_BUILD"])
LIMIT_S = 120  # for what has to end some time
TRIES = 20  # of a kill that has to come in the middle of a command that takes less than a second
# The workers that move dead letters end first. If queues are deleted while their messages fall due, these workers crash,
# and RabbitMQ 4.3 can lose their supervisor. Then it declares no quorum queue that dead-letters at least once.
DELETE_QUEUES = (
    "[supervisor:terminate_child(rabbit_fifo_dlx_sup, Pid) "
    "|| {_, Pid, _, _} <- supervisor:which_children(rabbit_fifo_dlx_sup)], "
    '[rabbit_amqqueue:delete(Q, false, false, <<"test">>) || Q <- rabbit_amqqueue:list()].'
)

USAGE, DATA, NO_INPUT, UNAVAILABLE, CANNOT_CREATE, TRY_AGAIN, NO_PERMISSION = 64, 65, 66, 69, 73, 75, 77
INTERRUPTED = 130


class Ran(subprocess.CompletedProcess):
    """The result of the program, as text."""

    @property
    def objects(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.stdout.splitlines()]


def run(*arguments: object, stdin: str = "", **environment: str) -> Ran:
    """Runs `backhop ARGUMENTS` and waits for its end."""
    ran = subprocess.run(
        [BUILD / "backhop", *map(str, arguments)],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env={**{name: value for name, value in os.environ.items() if name != "BACKHOP_MANAGEMENT_URL"}, **environment},
        check=False,
    )
    return Ran(ran.args, ran.returncode, ran.stdout, ran.stderr)


def long(test: Any) -> Any:
    """Marks a class or a method that takes a second or more on a quiet machine, or kills the broker."""
    test.is_long = True
    return test


def managed(test: Any) -> Any:
    """Marks a class or a method that needs the management API, which a model of RabbitMQ does not have."""
    test.is_managed = True
    url = os.environ.get("BACKHOP_MANAGEMENT_URL")
    return unittest.skipUnless(url, "BACKHOP_MANAGEMENT=1 was not set: the broker has no management API")(test)


class Loader(unittest.TestLoader):
    """Loads the tests that a function of their marks chooses."""

    def __init__(self, is_chosen: Callable[[bool, bool, bool], bool]) -> None:
        super().__init__()
        self.is_chosen = is_chosen

    def getTestCaseNames(self, case: type[unittest.TestCase]) -> list[str]:  # noqa: N802
        def has(mark: str, name: str) -> bool:
            return hasattr(case, mark) or hasattr(getattr(case, name), mark)

        names = super().getTestCaseNames(case)
        is_live = case.__module__.startswith("live.")
        return [name for name in names if self.is_chosen(is_live, has("is_long", name), has("is_managed", name))]


class TimedResult(unittest.TextTestResult):
    """Prints the slowest tests at the end, and writes all durations into the directory $BACKHOP_DURATIONS if it is set."""

    SHOWN = 10

    def startTest(self, test: unittest.TestCase) -> None:  # noqa: N802
        self.begun = time.monotonic()
        super().startTest(test)

    def stopTest(self, test: unittest.TestCase) -> None:  # noqa: N802
        super().stopTest(test)
        self.durations[test.id()] = time.monotonic() - self.begun

    def startTestRun(self) -> None:  # noqa: N802
        self.durations: dict[str, float] = {}
        super().startTestRun()

    def stopTestRun(self) -> None:  # noqa: N802
        super().stopTestRun()
        slowest = sorted(self.durations, key=lambda test: -self.durations[test])[: self.SHOWN]
        self.stream.writeln("The slowest tests:" if slowest else "")
        for test in slowest:
            self.stream.writeln(f"{self.durations[test]:8.2f} s  {test}")
        if directory := os.environ.get("BACKHOP_DURATIONS"):
            lines = [{"suite": "command", "test": test, "seconds": round(took, 3)} for test, took in self.durations.items()]
            path = Path(directory, f"command-{os.getpid()}.jsonl")
            path.write_text("".join(json.dumps(line) + "\n" for line in lines))


class Case(unittest.TestCase):
    """A test case that can say what the program should have done."""

    maxDiff = None

    def ok(self, *arguments: object, **more: str) -> Ran:
        return self.ends(0, *arguments, **more)

    def ends(self, code: int, *arguments: object, **more: str) -> Ran:
        ran = run(*arguments, **more)
        self.assertEqual(ran.returncode, code, f"{ran.args}: {ran.stdout}{ran.stderr}")
        return ran


class Rig:
    """The program beside it, which parks, handles and drains (rig.c)."""

    program = BUILD / "command-rig"

    def __call__(self, *arguments: object) -> list[str]:
        ran = subprocess.run(
            [self.program, *map(str, arguments)], capture_output=True, timeout=LIMIT_S, check=False, errors="replace", text=True
        )
        if ran.returncode:
            raise AssertionError(f"{arguments}: {ran.stderr}")
        return ran.stdout.splitlines()


rig = Rig()


def dropped(mark: Path) -> int:
    """Returns how many messages a drop has dropped by its mark; -1 if it has none: it has not begun, or has ended."""
    try:
        return int(mark.read_text().split()[0])
    except (FileNotFoundError, IndexError):
        return -1


def drain(queue: str, expected: int) -> list[str]:
    """Waits for so many messages, and takes all: id, error, replays, routing key, body, with tabs between."""
    return rig("drain", queue, expected)


def broker_ctl(*words: str) -> None:
    subprocess.run([os.environ["BACKHOP_BROKER_CTL"], *words], check=True, stdout=subprocess.DEVNULL, timeout=LIMIT_S)


def backhop(*arguments: object) -> subprocess.Popen:
    """Starts the program, for who does something to it meanwhile."""
    return subprocess.Popen(
        [BUILD / "backhop", *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


@contextlib.contextmanager
def exporter(*arguments: object) -> Iterator[str]:
    """Runs `backhop exporter ARGUMENTS` on any port: the URL of its metrics."""
    with subprocess.Popen(
        [BUILD / "backhop", "exporter", *map(str, arguments), "--listen", "127.0.0.1:0"], stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield re.search(r"http://\S+", process.stderr.readline()).group(0)
        finally:
            process.terminate()
            process.wait(LIMIT_S)


def scrape(url: str, limit_s: float = LIMIT_S) -> str:
    with urllib.request.urlopen(url, timeout=limit_s) as answer:
        return answer.read().decode()


@contextlib.contextmanager
def http_api(answer: Callable[[str], tuple[int, bytes] | None]) -> Iterator[str]:
    """Serves GET requests: `answer(path)` is a status and a body; None: there is no answer. Yields host and port."""
    is_over = threading.Event()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # a head and its body leave together

        def do_GET(self) -> None:  # noqa: N802
            found = answer(self.path)
            if found is None:
                is_over.wait()
                self.close_connection = True
                return
            status, body = found
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            is_over.set()
            server.shutdown()
            thread.join()


class SlowChannel(Proxy):
    """A way to the broker of AMQP_URL on which messages get stuck.

    After so many deliveries the others of their channel wait until it has answered twice about a depth. A slow broker may
    do so. An answer can overtake deliveries that a queue had handed to the channel before. It cannot overtake deliveries
    that the channel had in hand at the request. So an answer that comes earlier waits until deliveries wait: the first
    one that the program gets is the first one that counts here.
    """

    DELIVER, DECLARE_OK, FIRST_CHANNEL = (60, 60), (50, 11), 1

    def __init__(self, deliveries: int) -> None:
        self.deliveries = deliveries
        self.held_frames = 0
        super().__init__(os.environ["AMQP_URL"])

    def _pump(self, source: socket.socket, sink: socket.socket, is_held: bool) -> None:
        if not is_held:  # to the broker
            super()._pump(source, sink, is_held)
            return
        delivered, slow_channel, answers, held, early = 0, None, 0, [], []
        with source.makefile("rb") as frames, contextlib.suppress(OSError):
            while head := frames.read(7):
                kind, channel, size = struct.unpack("!BHI", head)
                frame = head + frames.read(size + 1)
                is_method = kind == 1
                method = struct.unpack("!HH", frame[7:11]) if is_method else None
                is_delivery = not is_method or method == self.DELIVER
                is_answer = method == self.DECLARE_OK and channel != self.FIRST_CHANNEL
                delivered += is_method and is_delivery
                if is_answer and slow_channel is None:
                    early.append(frame)
                    continue
                if delivered > self.deliveries and slow_channel is None:
                    slow_channel, answers = channel, len(early)
                    sink.sendall(b"".join(early))
                if channel == slow_channel and is_delivery and answers < 2:
                    held.append(frame)
                    self.held_frames += 1
                    continue
                answers += is_answer and channel == slow_channel
                if answers == 2:
                    sink.sendall(b"".join(held))
                    held = []
                sink.sendall(frame)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)


class Gate(Proxy):
    """A way from the broker of AMQP_URL on which so many deliveries or confirms pass, and nothing behind them until more may.

    So a test does something in the middle of a command, however fast the machine is.
    """

    DELIVER, CONFIRM = (60, 60), (60, 80)

    def __init__(self, *, deliveries: int | None = None, confirms: int | None = None) -> None:
        self.method = self.CONFIRM if deliveries is None else self.DELIVER
        self.allowed, self.passed = confirms or deliveries or 0, 0
        self.news = threading.Condition()
        super().__init__(os.environ["AMQP_URL"])

    def allow(self, more: int) -> None:
        with self.news:
            self.allowed += more
            self.news.notify_all()

    def open_until(self, is_met: Callable[[], Any], step: int = 1) -> None:
        """Lets so many more pass again and again, until the condition is met."""
        until = time.monotonic() + LIMIT_S
        while not is_met():
            if time.monotonic() > until:
                raise AssertionError(f"it never happened: {self.passed} came, {self.allowed} may pass")
            with self.news:
                if self.passed > self.allowed:
                    self.allow(step)
            time.sleep(0.01)

    @contextlib.contextmanager
    def trickling(self) -> Iterator[None]:
        """Lets one more pass each 10 ms, and all the rest at the end."""
        is_over = threading.Event()
        thread = threading.Thread(target=self.open_until, args=(is_over.is_set,))
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()
            self.open()

    def open(self) -> None:
        self.allow(10**9)

    def _pump(self, source: socket.socket, sink: socket.socket, is_held: bool) -> None:
        if not is_held:  # to the broker
            super()._pump(source, sink, is_held)
            return
        with source.makefile("rb") as frames, contextlib.suppress(OSError):
            while head := frames.read(7):
                kind, _, size = struct.unpack("!BHI", head)
                frame = head + frames.read(size + 1)
                if kind == 1 and struct.unpack("!HH", frame[7:11]) == self.method:
                    self._pass()
                sink.sendall(frame)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)

    def _pass(self) -> None:
        with self.news:
            self.passed += 1
            self.news.wait_for(lambda: self.passed <= self.allowed)

    def close(self) -> None:
        self.open()
        super().close()


class LiveCase(Case):
    """A test on the broker of AMQP_URL."""

    numbers = iter(range(10**6))

    @classmethod
    def setUpClass(cls) -> None:
        if not os.environ.get("AMQP_URL"):
            raise AssertionError("AMQP_URL names no broker: tests/broker/broker runs one")
        version = os.environ.get("BACKHOP_BROKER_VERSION", "4.3")
        cls.version = tuple(map(int, version.split(".")[:2]))

    @classmethod
    def tearDownClass(cls) -> None:
        """Deletes all queues of a private broker. For its management API it looks at each of them twice a second."""
        if os.environ.get("BACKHOP_BROKER_CTL"):
            broker_ctl("eval", DELETE_QUEUES)

    def queue(self) -> str:
        """A name that no other test has."""
        return f"command.{os.getpid()}.{next(self.numbers)}"

    def parked(self, count: int, *errors: str) -> str:
        """Makes a work queue, and has a worker park so many messages of it."""
        queue = self.queue()
        rig("park", queue, count, *errors)
        self.await_ready(queue + ".parked", at_least=count)
        return queue

    def saved(self, queue: str) -> list[str]:
        """Returns the ids of the parked messages, in order."""
        return [line["id"] for line in self.ok("parked", "save", queue, "-").objects]

    def gate(self, **allowed: int) -> Gate:
        return self.enterContext(contextlib.closing(Gate(**allowed)))

    def await_ready(self, queue: str, at_least: int) -> None:
        self.await_depth(queue, lambda ready, _: ready >= at_least, f"{at_least} messages")

    def await_returned(self, queue: str) -> None:
        """Waits until the broker has removed a killed consumer, and has put its messages back."""
        self.await_depth(queue, lambda _, consumers: consumers == 0, "no consumer")

    def await_depth(self, queue: str, is_met: Callable[[int, int], bool], what: str) -> None:
        until = time.monotonic() + LIMIT_S
        while time.monotonic() < until:
            try:
                if is_met(*map(int, rig("depth", queue))):
                    return
            except AssertionError:
                pass  # a broker that starts
            time.sleep(0.02)
        self.fail(f"{queue} never had {what}")


class Terminal:
    """The program in a terminal of its own."""

    def __init__(
        self, *arguments: object, program: str = str(BUILD / "backhop"), columns: int = 100, lines: int = 30, **environment: str
    ) -> None:
        self.arguments = [program, *map(str, arguments)]
        self.size = (lines, columns)
        self.environment = {**os.environ, "TERM": "xterm", **environment}
        self.seen = ""

    def __enter__(self) -> Terminal:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(self.arguments[0], self.arguments, self.environment)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", *self.size, 0, 0))
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)

    def read(self, limit_s: float) -> bool:
        """Reads what comes next; whether something did."""
        if not select.select([self.fd], [], [], limit_s)[0]:
            return False
        try:
            got = os.read(self.fd, 65536)
        except OSError:  # the program has ended
            return False
        self.seen += got.decode(errors="replace")
        return bool(got)

    def expect(self, text: str) -> None:
        until = time.monotonic() + LIMIT_S
        while text not in self.seen:
            if not self.read(max(0, until - time.monotonic())) or time.monotonic() > until:
                raise AssertionError(f"{text!r} did not appear within {LIMIT_S} s; the terminal showed:\n{self.seen}")

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def wait(self) -> int:
        """Returns the exit code. Fails if the program does not end within LIMIT_S."""
        until = time.monotonic() + LIMIT_S
        while self.read(max(0, until - time.monotonic())):
            pass
        if time.monotonic() > until:
            raise AssertionError(f"the program did not end within {LIMIT_S} s; the terminal showed:\n{self.seen}")
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        return os.waitstatus_to_exitcode(status)
