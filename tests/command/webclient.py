"""A client of `backhop web` for the tests: it sends requests of browsers, and forged ones."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from harness import BUILD, LIMIT_S, TRIES, LiveCase, dropped


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=LIMIT_S)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(LIMIT_S)
        self.sock.connect(self.path)


class Answer:
    """A status, headers and a body."""

    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self.status, self.headers, self.body = answer.status, answer.headers, answer.read()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Web(contextlib.AbstractContextManager):
    """Runs `backhop web ARGUMENTS`."""

    def __init__(self, *arguments: object, state: str | None = None, unix: bool = False, **environment: str) -> None:
        self.directory = tempfile.TemporaryDirectory()
        self.state = state or self.directory.name + "/state"
        self.unix = self.directory.name + "/socket" if unix else None
        listen = f"unix:{self.unix}" if unix else "127.0.0.1:0"
        self.process = subprocess.Popen(
            [BUILD / "backhop", "web", "--listen", listen, "--state", self.state, *map(str, arguments)],
            stderr=subprocess.PIPE, text=True, env={**os.environ, **environment})
        line = self.process.stderr.readline()
        self.url = (re.search(r"(http|unix):\S+", line) or [line])[0]
        self.token = self.url.rpartition("#token=")[2]
        self.line = self.process.stderr.readline().rstrip("\n")  # about --allow
        self.cookie, self.api = "", "api"

    def __exit__(self, *_: object) -> None:
        was_killed = self.process.poll() is not None
        if not was_killed:
            self.process.terminate()
        self.process.wait(LIMIT_S)
        self.problems = self.process.stderr.read()
        self.process.stderr.close()
        self.directory.cleanup()
        if not was_killed and self.process.returncode != 0:
            raise AssertionError(f"backhop web ended with {self.process.returncode}: {self.problems}")

    @property
    def origin(self) -> str:
        return self.url.split("/#")[0]

    def connect(self) -> http.client.HTTPConnection:
        if self.unix:
            return UnixConnection(self.unix)
        address = urlsplit(self.url)
        return http.client.HTTPConnection(address.hostname, address.port, timeout=LIMIT_S)

    def call(self, method: str, path: str, body: object = None, **headers: str | None) -> Answer:
        """Sends a request as the page does. A header that is None is left out; "_" in its name stands for "-".

        With a session, calls below /api/ go to the session's path.
        """
        if path.startswith("/api/"):
            path = f"/{self.api}/{path.removeprefix('/api/')}"
        own = {"Sec-Fetch-Site": "same-origin", "Cookie": self.cookie or None}
        if method == "POST":
            own |= {"Content-Type": "application/json", "X-Backhop": "1"}
        own |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection = self.connect()
        try:
            data = body if isinstance(body, (bytes, str)) or body is None else json.dumps(body)
            connection.request(method, path, data, {name: value for name, value in own.items() if value is not None})
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def get(self, path: str, **headers: str | None) -> Answer:
        return self.call("GET", path, **headers)

    def post(self, path: str, body: object = None, **headers: str | None) -> Answer:
        return self.call("POST", path, {} if body is None else body, **headers)

    def log_in(self) -> Web:
        answer = self.post("/api/login", {"token": self.token})
        self.cookie, self.api = answer.headers["Set-Cookie"].partition(";")[0], answer.json["api"]
        return self

    def await_state(self, find: Callable[[dict[str, Any]], Any]) -> Any:
        """Waits until `find` finds something in the state, and returns it."""
        until = time.monotonic() + LIMIT_S
        while not (found := find(state := self.get("/api/state").json)):
            if time.monotonic() > until:
                raise AssertionError(f"it is not in the state: {state}")
            time.sleep(0.05)
        return found

    def await_job(self, number: int, *states: str) -> dict[str, Any]:
        """Waits until a job has one of the states."""
        wanted = states or ("done", "stopped", "cancelled", "interrupted")
        return self.await_state(lambda state: next((job for job in state["jobs"] if job["job"] == number and job["state"] in wanted), None))

    def children(self) -> list[int]:
        """Returns the process ids of the sub-commands."""
        return [int(pid) for pid in Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()]

    def kill(self, *words: str) -> None:
        """Kills the program by SIGKILL; before it its sub-commands that have one of the words."""
        self.process.send_signal(signal.SIGSTOP)  # it shall not see their end
        for pid in self.children():
            if set(words) & set(Path(f"/proc/{pid}/cmdline").read_text().split("\0")):
                os.kill(pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait()

    def await_replayed(self, number: int, count: int) -> None:
        """Waits until a job has replayed so many messages."""
        while (self.await_job(number, "running")["progress"] or {}).get("replayed", 0) < count:
            time.sleep(0.1)


class WebCase(LiveCase):
    """A test with `backhop web` on the broker."""

    def web(self, *arguments: object, **more: object) -> Web:
        page = Web(*arguments, **more)
        self.addCleanup(page.__exit__, None, None, None)
        return page.log_in()

    def drop_in_the_middle(self, begin: Callable[[], tuple[str, Web]], count: int, part: int) -> tuple[str, Web, dict[str, Any], Path]:
        """Begins to drop all messages of a queue, and returns when so many are dropped and others are not.

        If the drop ends before that is seen, `begin` makes another queue, with its page.
        """
        for _ in range(TRIES):
            queue, page = begin()
            job = page.post("/api/drop", {"queue": queue, "expect": count}).json
            mark = Path(page.state, "saved", job["file"] + ".dropped")
            while page.await_job(job["job"], "running", "done")["state"] == "running":
                if dropped(mark) >= part:
                    return queue, page, job, mark
            page.kill()
        raise AssertionError(f"each of {TRIES} drops of {count} messages ended before it was seen that it had dropped {part}")

    def acting(self, *queues: str, **more: object) -> Web:
        return self.web("--allow", "replay,drop", *queues, **more)
