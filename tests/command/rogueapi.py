"""A management API for the tests, which can be silent or endless."""

from __future__ import annotations

import contextlib
import http.server
import json
import queue
import threading
from collections.abc import Callable, Iterator
from urllib.parse import parse_qs, urlsplit


@contextlib.contextmanager
def api(answer: Callable[[int], dict | None]) -> Iterator[tuple[str, queue.Queue]]:
    """Serves pages of queues, `answer(page)`; None: never answers. Yields its address, and the paths of requests."""
    asked: queue.Queue[str] = queue.Queue()
    is_over = threading.Event()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # a head and its body leave together

        def do_GET(self) -> None:  # noqa: N802
            asked.put(self.path)
            page = int(parse_qs(urlsplit(self.path).query).get("page", ["1"])[0])
            found = answer(page)
            if found is None:
                is_over.wait()
                self.close_connection = True
                return
            body = json.dumps(found).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", asked
        finally:
            is_over.set()
            server.shutdown()
            thread.join()
