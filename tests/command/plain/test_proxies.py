"""The examples of docs/web.md: the output of `backhop web`, and nginx and Caddy in front of it."""

import base64
import contextlib
import http.client
import json
import re
import shutil
import socket
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from harness import LIMIT_S, Case, long
from webclient import Web

BLOCKS = re.findall(r"^```\w+\n(.*?)^```$", Path(__file__).parents[3].joinpath("docs/web.md").read_text(), re.M | re.S)
NO_BROKER = {"AMQP_URL": "amqp://127.0.0.1:1/"}
HOST = "retries.example.com"


def block(begin):
    """Returns the block that begins so."""
    (found,) = [each for each in BLOCKS if each.startswith(begin)]
    return found


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def is_open(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


@contextlib.contextmanager
def running(*words, port):
    """Runs a proxy until the end of the block, and waits for its port."""
    with tempfile.TemporaryFile("w+") as log, subprocess.Popen(words, stdout=log, stderr=log) as process:
        try:
            until = time.monotonic() + LIMIT_S
            while not is_open(port):
                if process.poll() is not None or time.monotonic() > until:
                    log.seek(0)
                    raise AssertionError(log.read())
                time.sleep(0.05)
            yield
        finally:
            process.kill()  # Caddy waits for open streams


class Output(Case):
    def test_the_page_shows_the_output(self):
        with Web("orders", **NO_BROKER) as page:
            shown = block("$ export AMQP_URL").splitlines()[2:]
            self.assertEqual(re.sub(r":\d+/#token=\w+", ":9420/#token=5d1c...", f"backhop: open {page.url}"), shown[0])
            self.assertEqual(page.line, shown[1])


class Proxies(Case):
    def page(self):
        words = block("backhop web --listen").replace("\\\n", "").split()[2:]
        return Web(*words[words.index("--user-header"):], unix=True, **NO_BROKER)

    def get(self, port, path, user=None):
        headers = {"Host": HOST, "X-Forwarded-User": "eve", "Sec-Fetch-Site": "same-origin"}
        if user:
            headers["Authorization"] = "Basic " + base64.b64encode(f"{user}:secret".encode()).decode()
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
        self.addCleanup(connection.close)
        connection.request("GET", path, headers=headers)
        return connection.getresponse()

    def check(self, port):
        self.assertEqual(self.get(port, "/backhop/").status, 401)
        self.assertEqual(self.get(port, "/backhop/", "ana").status, 200)
        self.assertEqual(json.loads(self.get(port, "/backhop/api/session", "ana").read())["user"], "ana")
        self.assertTrue(self.get(port, "/backhop/api/live", "ana").readline().startswith(b"data: "))

    @unittest.skipUnless(shutil.which("nginx"), "needs nginx")
    def test_nginx_names_the_user(self):
        port = free_port()
        with self.page() as page, tempfile.TemporaryDirectory() as directory:
            passwords = Path(directory, "passwords")
            crypted = subprocess.run(["openssl", "passwd", "-apr1", "secret"], capture_output=True, text=True, check=True).stdout
            passwords.write_text(f"ana:{crypted}")
            location = block("location").replace("/run/backhop/web.sock", page.unix).replace("/etc/nginx/backhop.htpasswd", str(passwords))
            temporary = "".join(f"{each}_temp_path {directory}/{each};" for each in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
            Path(directory).chmod(0o755)
            settings = Path(directory, "nginx.conf")
            settings.write_text(f"daemon off; master_process off; pid {directory}/pid; events {{}} http {{ access_log off; {temporary} "
                                f"server {{ listen 127.0.0.1:{port}; server_name {HOST};\n{location}\n}} }}\n")
            with running("nginx", "-e", "stderr", "-c", str(settings), port=port):
                self.check(port)

    @unittest.skipUnless(shutil.which("caddy"), "needs Caddy")
    @long
    def test_caddy_names_the_user(self):
        port = free_port()
        with self.page() as page, tempfile.TemporaryDirectory() as directory:
            crypted = subprocess.run(["caddy", "hash-password", "--plaintext", "secret"], capture_output=True, text=True, check=True).stdout.strip()
            settings = Path(directory, "Caddyfile")
            own = block(HOST).replace(f"{HOST} {{", f"http://{HOST}:{port} {{", 1).replace("/run/backhop/web.sock", page.unix)
            settings.write_text("{\nadmin off\n}\n" + own.replace("$2a$14$...", crypted))
            with running("caddy", "run", "--config", str(settings), "--adapter", "caddyfile", port=port):
                self.check(port)
