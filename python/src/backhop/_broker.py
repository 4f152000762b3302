"""Runs ``backhop model``, a model of RabbitMQ, for tests. backhop.testing has its class."""

from __future__ import annotations

import shlex
import subprocess
import sys
import threading
from types import TracebackType
from typing import Literal

from ._errors import ArgumentError, Error, StateError


class Broker:
    """A model of RabbitMQ, for tests: in memory, in a process of its own, for this machine alone.

    It starts at once, and its waits take no time: while no message is with a consumer, its clock
    skips to the next TTL. Connect to ``url`` with pika, aio-pika or a worker. Use it as a context
    manager, or call ``close``.

    :param version: of RabbitMQ: "3.10", "4.0" or "4.3".
    :param clock: "skip", or "real" to let waits take their time.
    :raises StateError: if the package was built without the command, which has the model.
    :raises Error: if the version or clock is unknown.
    """

    url: str
    """Its AMQP URL, at a free port of 127.0.0.1, for the user guest."""

    def __init__(self, version: str = "4.3", *, clock: Literal["skip", "real"] = "skip") -> None:
        command = [sys.executable, "-m", "backhop", "model", "--control", "-"]
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [*command, "--version", version, "--clock", clock],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout
        self.url = self._process.stdout.readline().strip()
        if not self.url:
            raise self._failed()

    def _failed(self) -> Error:
        problem = self._process.communicate()[1].strip()
        unavailable = 69
        kind = StateError if self._process.returncode == unavailable else Error
        return kind(problem or f"backhop model ended with status {self._process.returncode}")

    def control(self, *words: object) -> list[str]:
        """Does what an operator or a fault would do, and returns the lines of the answer.

        ``control("kill")`` and ``control("start")`` restart the broker.
        ``control("advance", 60_000)`` lets 60,000 ms pass. ``control("list", "queues")`` lists the
        queues. The manual backhop(1) lists all commands.

        :param words: the words of a command.
        :raises Error: if the command is unknown, or failed.
        :raises StateError: if the broker is closed.
        """
        line = shlex.join(str(word) for word in words)
        if "\n" in line or "\0" in line:
            raise ArgumentError(f"{line!r} has a line feed or a zero byte: give words without them")
        with self._lock:
            if self._process.poll() is not None:
                raise StateError("the broker is closed; start another one")
            return self._answer(line)

    def _answer(self, command: str) -> list[str]:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        lines: list[str] = []
        for line in self._process.stdout:
            text = line.rstrip("\n")
            if text == "ok":
                return lines
            if text.startswith("error: "):
                raise Error(text.removeprefix("error: "))
            lines.append(text)
        raise self._failed()

    def close(self) -> None:
        """Ends the broker, with all its messages. It may be called again."""
        self._process.terminate()
        self._process.communicate()

    def __enter__(self) -> Broker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
