"""A TCP proxy in front of the broker, which holds what the broker says, or cuts the connections."""

from __future__ import annotations

import contextlib
import socket
import threading
from urllib.parse import urlsplit, urlunsplit


class Proxy:
    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._broker = (parts.hostname or "", parts.port or 5672)
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        self.url = urlunsplit(parts._replace(netloc=f"{parts.username}:{parts.password}@127.0.0.1:{port}"))
        self._passes = threading.Event()
        self._passes.set()
        self._sockets: list[socket.socket] = []
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def hold(self) -> None:
        """From now on the client receives nothing, while the broker does."""
        self._passes.clear()

    def release(self) -> None:
        self._passes.set()

    def cut(self) -> None:
        """Ends all connections; new ones pass."""
        held, self._sockets = self._sockets, []
        for each in held:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()
        self.cut()
        self.release()
        for each in self._open:
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            broker = socket.create_connection(self._broker)
            self._sockets += [client, broker]
            self._open += [client, broker]
            threading.Thread(target=self._pump, args=(client, broker, False), daemon=True).start()
            threading.Thread(target=self._pump, args=(broker, client, True), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, is_held: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if is_held:
                    self._passes.wait()
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)
