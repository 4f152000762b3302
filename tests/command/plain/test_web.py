"""The access rules of `backhop web`: each has a request that is refused, and one that is let in. Without a broker."""

import contextlib
import os
import re
import resource
import socket
import stat
import subprocess
import tempfile
import time
from pathlib import Path

from harness import BUILD, LIMIT_S, UNAVAILABLE, USAGE, Case, long
from webclient import Web

NO_BROKER = {"AMQP_URL": "amqp://127.0.0.1:1/", "BACKHOP_MANAGEMENT_URL": "http://127.0.0.1:1"}


def web(*arguments, **more):
    return Web(*arguments, **more, **NO_BROKER)


class Access(Case):
    def test_calls_need_the_session_that_a_token_begins(self):
        with web() as page:
            self.assertEqual(page.get("/api/session").status, 401)
            for wrong in ({"token": "0" * 32}, {"token": ""}, {"token": None}, {}, {"token": page.token[:-1]}):
                answer = page.post("/api/login", wrong)
                self.assertEqual((answer.status, answer.headers["Set-Cookie"]), (401, None), wrong)
            answer = page.post("/api/login", {"token": page.token})
            self.assertEqual(answer.status, 200)
            cookie = answer.headers["Set-Cookie"]
            self.assertIn("HttpOnly", cookie)
            self.assertIn("SameSite=Strict", cookie)
            self.assertNotIn(page.token, cookie)
            page.log_in()
            self.assertEqual(page.cookie, cookie.partition(";")[0])
            self.assertEqual(page.get("/api/session").json["may_replay"], False)
            page.cookie = page.cookie[:-1] + ("0" if page.cookie[-1] != "0" else "1")
            self.assertEqual(page.get("/api/session").status, 401)

    def test_s4_3_the_cookie_needs_the_path_that_only_the_page_knows(self):
        with web() as page:
            answer = page.post("/api/login", {"token": page.token})
            page.log_in()
            self.assertRegex(page.api, "^api/[0-9a-f]{32}$")
            self.assertIn(f"; Path=/{page.api}/;", answer.headers["Set-Cookie"])
            self.assertEqual(page.get("/api/session").status, 200)
            wrong = page.api[:-1] + ("0" if page.api[-1] != "0" else "1")
            for page.api in ("api", "api/", wrong, page.api[:-1], page.api + "0", "api/" + "0" * 200):
                self.assertEqual((page.get("/api/session").status, page.post("/api/schedule").status), (401, 401), page.api)

    def test_a_url_without_its_fragment_shows_no_data(self):
        with web() as page:
            self.assertEqual(page.get("/").status, 200)
            self.assertNotIn(page.token.encode(), page.get("/").body)
            for path in ("session", "state", "live", "groups", "history", "saved", "saved/x.ndjson"):
                self.assertEqual(page.get(f"/api/{path}").status, 401, path)
            for path in ("groups", "samples", "message", "doctor", "schedule", "simulate", "replay", "drop", "load", "stop"):
                self.assertEqual(page.post(f"/api/{path}").status, 401, path)

    def test_a_rebound_name_gets_nothing(self):
        with web("--host", "retries.example") as page:
            page.log_in()
            for host, status in (("evil.example", 421), ("127.0.0.1.evil.example", 421), ("localhost.evil.example:9420", 421),
                                 ("[::1", 421), ("localhost:x", 421), ("retries.example", 200), ("RETRIES.example:443", 200), ("localhost:9420", 200)):
                for path in ("/", "/api/session"):
                    self.assertEqual(page.get(path, Host=host, Sec_Fetch_Site=None).status, status, (host, path))

    def test_another_page_gets_nothing_with_the_session(self):
        with web() as page:
            page.log_in()
            host = page.origin.removeprefix("http://")
            for site, origin, status in (("cross-site", None, 403), ("same-site", None, 403), ("none", None, 200), ("same-origin", None, 200),
                                         (None, "http://evil.example", 403), (None, f"http://{host}", 200), (None, None, 200),
                                         ("cross-site", f"http://{host}", 403)):
                self.assertEqual(page.get("/api/session", Sec_Fetch_Site=site, Origin=origin).status, status, (site, origin))

    def test_a_change_comes_from_the_own_page_alone(self):
        with web() as page:
            page.log_in()
            host = page.origin.removeprefix("http://")
            for site, origin, status in (("cross-site", None, 403), ("same-site", None, 403), ("none", None, 403), (None, None, 403),
                                         (None, "null", 403), (None, f"http://{host}.evil.example", 403), (None, f"ftp://{host}", 403),
                                         (None, f"http://{host}", 200), ("same-origin", None, 200)):
                answer = page.post("/api/schedule", {"attempts": 3}, Sec_Fetch_Site=site, Origin=origin)
                self.assertEqual(answer.status, status, (site, origin, answer.body))

    def test_a_program_logs_in_as_the_page_of_operators_says(self):
        page_of_docs = Path(__file__).parents[3].joinpath("docs/web.md").read_text()
        (command,) = re.findall(r"```sh\n(curl .*?)```", page_of_docs, re.S)
        with web() as page, tempfile.TemporaryDirectory() as directory:
            filled = command.replace('"..."', f'"{page.token}"').replace("http://127.0.0.1:9420", page.origin)
            subprocess.run(["sh", "-ec", filled.replace("curl", "curl --silent --fail")], cwd=directory, check=True)
            self.assertIn("backhop", Path(directory, "cookies").read_text())
            refused = page.post("/api/login", {"token": page.token}, Sec_Fetch_Site=None)
            self.assertEqual(refused.status, 403)
            self.assertIn("Sec-Fetch-Site: same-origin", refused.json["error"])

    def test_a_form_post_changes_nothing(self):
        with web() as page:
            page.log_in()
            for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", None, "application/jsonx"):
                self.assertEqual(page.post("/api/schedule", {}, Content_Type=kind).status, 415, kind)
            self.assertEqual(page.post("/api/schedule", {}, Content_Type="application/json; charset=utf-8").status, 200)
            for header in (None, "0"):
                self.assertEqual(page.post("/api/schedule", {}, X_Backhop=header).status, 403, header)
            self.assertEqual(page.call("PUT", "/api/schedule", "{}", Content_Type="application/json", X_Backhop="1").status, 404)
            self.assertEqual(page.post("/").status, 405)

    def test_without_allow_it_only_shows(self):
        replay = {"queue": "orders", "expect": 1}
        with web() as page:
            page.log_in()
            for path in ("replay", "drop"):
                self.assertEqual(page.post(f"/api/{path}", replay).status, 403, path)
            self.assertEqual(page.post("/api/load", {"file": "x.ndjson"}).status, 403)
        with web("--allow", "replay") as page:
            page.log_in()
            self.assertEqual(page.get("/api/session").json["may_replay"], True)
            self.assertEqual(page.post("/api/replay", {"queue": "orders"}).status, 400)
            self.assertEqual(page.post("/api/drop", replay).status, 403)
            self.assertEqual(page.post("/api/replay", replay).status, 202)
        self.assertIn("none of replay", self.ends(USAGE, "web", "--allow", "all").stderr)

    def test_a_proxy_names_the_user(self):
        with web("--user-header", "X-User", unix=True) as page:
            mode = stat.S_IMODE(os.stat(page.unix).st_mode)
            self.assertEqual(mode, 0o660)
            for user, status in ((None, 401), ("", 401), ("a" * 200, 401), ("ana", 200)):
                self.assertEqual(page.get("/api/session", X_User=user).status, status, user)
            self.assertEqual(page.get("/api/session", X_User="ana").json["user"], "ana")
            named = "\u05d0na".encode()
            self.assertEqual(page.get("/api/session", X_User=named).json["user"], named.decode())
            for user in (b"a\xffb", "a\u202eb".encode(), "a\x85b".encode(), b"a\x7fb", b"a\tb"):  # S4-12
                self.assertEqual(page.get("/api/session", X_User=user).status, 401, user)
        self.assertIn("needs --listen unix:", self.ends(USAGE, "web", "--user-header", "X-User").stderr)

    def test_s4_1_a_file_at_the_path_of_the_socket_stays(self):
        with tempfile.TemporaryDirectory() as directory:
            file, link, gone = (Path(directory) / name for name in ("file", "link", "gone"))
            file.write_text("precious")
            link.symlink_to(gone)
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(str(gone))
            for path in (file, link, Path(directory)):
                for command in (("web", "--state", f"{directory}/state"), ("exporter", "orders")):
                    ran = self.ends(UNAVAILABLE, *command, "--listen", f"unix:{path}", **NO_BROKER)
                    self.assertIn(f"cannot listen at {path}: it exists and is no socket; remove it, or choose another path", ran.stderr)
            self.assertEqual(file.read_text(), "precious")
            self.assertTrue(link.is_symlink())
            self.assertTrue(gone.is_socket())
            listening = [BUILD / "backhop", "exporter", "orders", "--listen", f"unix:{gone}"]
            with subprocess.Popen(listening, stderr=subprocess.PIPE, text=True, env={**os.environ, **NO_BROKER}) as process:
                self.assertIn("metrics at", process.stderr.readline())  # It was stale.
                gone.unlink()
                gone.write_text("of somebody else")
                process.terminate()
                process.wait(LIMIT_S)
            self.assertEqual(gone.read_text(), "of somebody else")

    def test_s4_2_a_load_goes_to_no_queue_that_the_request_names(self):
        with web("--allow", "drop") as page:
            page.log_in()
            saved = Path(page.state, "saved", "x.ndjson")
            saved.write_text('{"queue": "orders.parked", "body": ""}\n')
            for more in ({"dry_run": True}, {"expect": 1}):
                answer = page.post("/api/load", {"file": "x.ndjson", "to": "any", **more})
                self.assertEqual((answer.status, answer.json["error"]), (400, 'there is no field "to"'))

    def test_it_listens_on_this_machine_alone(self):
        with tempfile.TemporaryDirectory() as state:
            self.assertIn("nginx", self.ends(USAGE, "web", "--listen", "0.0.0.0:0", "--state", state, **NO_BROKER).stderr)

    def test_answers_forbid_what_a_page_does_not_need(self):
        with web() as page:
            for path in ("/", "/app.js", "/api/session"):
                headers = page.get(path).headers
                self.assertTrue(headers["Content-Security-Policy"].startswith(
                    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; frame-ancestors 'none'; base-uri 'none'"))
                self.assertEqual((headers["X-Content-Type-Options"], headers["Referrer-Policy"]), ("nosniff", "no-referrer"))
            self.assertEqual(page.get("/api/session").headers["Cache-Control"], "no-store")

    def test_a_base_path(self):
        with web("--base-path", "/backhop") as page:
            self.assertIn("/backhop/#token=", page.url)
            self.assertEqual([page.get(path).status for path in ("/", "/backhop", "/backhopx/", "/backhop/")], [404, 404, 404, 200])
            answer = page.post("/backhop/api/login", {"token": page.token})
            self.assertIn(f"; Path=/backhop/{answer.json['api']}/;", answer.headers["Set-Cookie"])
        self.assertIn("no path", self.ends(USAGE, "web", "--base-path", "backhop/").stderr)


class Requests(Case):
    def test_bodies_become_no_other_options(self):
        with web("--allow", "replay,drop") as page:
            page.log_in()
            for path, body in (("samples", {"queue": "q", "uri": "amqp://evil"}), ("samples", {"queue": ["q"]}), ("samples", {}),
                               ("groups", {"where": "error~x"}), ("groups", {"where": ["x"] * 65}), ("samples", {"queue": "q", "limit": -1}),
                               ("samples", {"queue": "q\0--help"}), ("drop", {"queue": "q", "expect": 1, "file": "/etc/x"}),
                               ("replay", {"queue": "q", "expect": 1, "user": "eve"}), ("schedule", {"policy": "/etc/passwd"})):
                self.assertEqual(page.post(f"/api/{path}", body).status, 400, body)
            answer = page.post("/api/groups", {"queues": ["--help"]})
            self.assertEqual(answer.status, 409)  # no broker: it was taken as a queue
            for text in ("", "[]", "{", '{"a":1,"a":2}', b"\xff", "[" * 20000):
                self.assertEqual(page.post("/api/groups", text).status, 400, text[:20])

    def test_heads_and_bodies_are_bounded(self):
        with web() as page:
            page.log_in()
            self.assertEqual(page.get("/", X_Large="x" * 9000).status, 431)
            self.assertEqual(page.post("/api/schedule", " " * 70000 + "{}").status, 413)
            self.assertEqual(page.post("/api/schedule", " " * 60000 + "{}").status, 200)

    def test_connections_that_send_nothing_delay_no_page(self):
        with web() as page:
            idle = []
            for _ in range(1000):
                each = page.connect()
                each.connect()
                each.sock.sendall(b"GET / HTTP/1.1\r\nHost:")
                idle.append(each)
            begun = time.monotonic()
            self.assertEqual(page.get("/").status, 200)
            self.assertLess(time.monotonic() - begun, 5)
            for each in idle:
                each.close()

    def test_without_a_free_descriptor_it_waits_until_there_is_one(self):
        def used_s() -> float:
            fields = Path(f"/proc/{page.process.pid}/stat").read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

        with web() as page:
            page.log_in()
            most = len(os.listdir(f"/proc/{page.process.pid}/fd")) + 3
            resource.prlimit(page.process.pid, resource.RLIMIT_NOFILE, (most, most))
            waiting = [page.connect() for _ in range(10)]
            for each in waiting:
                each.connect()
            before = used_s()
            time.sleep(2)
            self.assertLess(used_s() - before, 1)
            for each in waiting:
                each.close()
            self.assertEqual(page.get("/").status, 200)

    def test_streams_leave_connections_for_others(self):
        with web() as page:
            page.log_in()
            streams = [page.connect() for _ in range(17)]
            for each in streams:
                each.request("GET", f"/{page.api}/live", headers={"Cookie": page.cookie})
            statuses = [each.getresponse().status for each in streams]
            self.assertEqual((statuses.count(200), statuses.count(503)), (16, 1))
            self.assertEqual(page.get("/api/state").status, 200)
            for each in streams:
                each.close()

    def test_a_client_that_does_not_read_delays_no_other(self):
        with web() as page:
            page.log_in()
            slow = [page.connect() for _ in range(80)]  # above its limit of connections
            for each in slow:
                each.connect()
                each.sock.setblocking(False)
                with contextlib.suppress(OSError):  # S4-4: it has ended an earlier one for each of the last ones
                    each.sock.send(b"GET /app.js HTTP/1.1\r\nHost: localhost\r\n\r\n" * 200)
            for _ in range(10):
                self.assertEqual(page.get("/").status, 200)
            for each in slow:
                each.close()

    def test_saved_files_are_those_of_the_directory(self):
        with web() as page:
            page.log_in()
            with open(f"{page.state}/saved/a.ndjson", "w") as file:
                file.write("{}\n")
            os.symlink("/etc/passwd", f"{page.state}/saved/b.ndjson")
            self.assertEqual(page.get("/api/saved/a.ndjson").body, b"{}\n")
            self.assertIn("attachment", page.get("/api/saved/a.ndjson").headers["Content-Disposition"])
            for name in ("b.ndjson", "../history.ndjson", "..%2fhistory.ndjson", ".ndjson", "c.ndjson"):
                self.assertEqual(page.get(f"/api/saved/{name}").status, 404, name)

    def test_s4_9_s4_10_a_pipe_and_a_link_are_no_saved_files(self):
        with web("--allow", "drop") as page:
            page.log_in()
            os.mkfifo(f"{page.state}/saved/pipe.ndjson")
            os.symlink("/etc/passwd", f"{page.state}/saved/link.ndjson")
            for name in ("pipe.ndjson", "link.ndjson"):
                self.assertEqual(page.get(f"/api/saved/{name}").status, 404, name)
                for more in ({"dry_run": True}, {"expect": 1}):
                    answer = page.post("/api/load", {"file": name, **more})
                    self.assertEqual((answer.status, answer.json["error"]), (404, "no saved file has this name"))

    def test_s4_14_a_text_with_a_nul_says_what_to_do(self):
        with web() as page:
            page.log_in()
            answer = page.post("/api/message", {"queue": "q", "id": "a\0b", "body_bytes": 1})
            self.assertEqual((answer.status, answer.json["error"]),
                             (400, '"id" has a NUL character: name a message by its position, as @3'))

    def test_s4_14_a_state_directory_that_others_can_change_has_a_warning(self):
        with tempfile.TemporaryDirectory() as directory:
            os.chmod(directory, 0o777)
            with Web(state=directory, **NO_BROKER) as page:
                warning = page.url
            self.assertEqual(warning, f"backhop: --state: all users may write to {directory}; run 'chmod o-w' on it\n")

    def test_s4_11_a_request_has_each_header_once(self):
        heads = {
            "length": "Content-Length: 0\r\nContent-Length: 9\r\n",
            "length and chunks": "Content-Length: 9\r\nTransfer-Encoding: chunked\r\n",
            "host": "Host: localhost\r\n",
            "site": "Sec-Fetch-Site: same-origin\r\nSec-Fetch-Site: cross-site\r\n",
            "user": "X-User: admin\r\nx-user: ana\r\n",
        }
        with web("--user-header", "X-User", unix=True) as page:
            for name, head in heads.items():
                connection = page.connect()
                connection.connect()
                connection.sock.sendall(f"POST /api/session HTTP/1.1\r\nHost: localhost\r\n{head}\r\n".encode())
                with connection.sock.makefile("rb") as file:
                    answer = file.read()  # until the connection ends: the rest is no request
                self.assertTrue(answer.startswith(b"HTTP/1.1 400 "), (name, answer))
                self.assertEqual(answer.count(b"HTTP/1.1 "), 1, name)
                connection.close()

    def test_the_page_is_small_and_is_not_sent_twice(self):
        with web() as page:
            self.assertEqual(page.get("/nothing.js").status, 404)
            plain, small = page.get("/app.js"), page.get("/app.js", Accept_Encoding="gzip")
            self.assertEqual(small.headers["Content-Encoding"], "gzip")
            self.assertLess(len(small.body), len(plain.body))
            self.assertEqual(page.get("/app.js", If_None_Match=plain.headers["ETag"]).status, 304)

    def test_a_policy_needs_no_broker(self):
        with web() as page:
            page.log_in()
            rows = page.post("/api/schedule", {"initial": "1s", "max_attempts": "4", "jitter": "none"}).json["results"]
            self.assertEqual([row["mean_ms"] for row in rows], [1000, 2000, 4000])
            runs = page.post("/api/simulate", {"initial": "1s", "down": "10s..40s", "seed": 1}).json["results"]
            self.assertEqual([len(run["over_time"]) > 1 for run in runs], [True, True])
            answer = page.post("/api/schedule", {"kind": "cubic"})
            self.assertEqual(answer.status, 400)
            self.assertIn("'cubic'", answer.json["error"])

    @long
    def test_a_simulation_that_takes_too_long_says_what_to_do(self):
        with web() as page:
            page.log_in()
            answer = page.post("/api/simulate", {"rate": 1000000, "down": "1m..10d"})
            self.assertEqual((answer.status, page.children()), (504, []))
            self.assertEqual(answer.json["error"],
                             "simulate was stopped after 30 s: ask for fewer queues, fewer messages or a shorter time")

    def test_without_a_broker_it_says_so(self):
        with web("orders") as page:
            page.log_in()
            answer = page.post("/api/groups")
            self.assertEqual(answer.status, 409)
            self.assertIn("no connection to 127.0.0.1:1", answer.json["error"])
