"""`backhop web` on a broker: looks, actions and refusals."""

import base64
import json
import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harness import BUILD, INTERRUPTED, LIMIT_S, TRY_AGAIN, Gate, drain, long, managed, rig
from webclient import Web, WebCase

MANY = 3000  # messages of a look


class Looks(WebCase):
    def test_a_snapshot_groups_all_queues_by_error(self):
        one, other = self.parked(4, "507 queue %d is full", "bad"), self.parked(2, "507 queue %d is full")
        page = self.web(one, other)
        self.assertEqual(page.get("/api/groups").json, {"number": 0})
        snapshot = page.post("/api/groups", {"by": "error", "over_time": "1h"}).json
        self.assertEqual([(group["error"], group["count"], len(group["queues"])) for group in snapshot["groups"]],
                         [("# queue # is full", 4, 2), ("bad", 2, 1)])
        self.assertEqual([sum(group["over_time"]["parked"]) for group in snapshot["groups"]], [4, 2])
        self.assertEqual(page.get("/api/groups").json, snapshot)
        self.assertGreater(page.post("/api/groups", {"by": "error", "where": ["error~FULL"]}).json["number"], snapshot["number"])

    def test_samples_and_one_message_with_its_body(self):
        queue = self.parked(5, "507 queue %d is full", "bad")
        before = self.saved(queue)
        page = self.web(queue)
        found = page.post("/api/samples", {"queue": queue, "where": ["kind=# queue # is full", "reason=permanent"], "limit": 2}).json["results"]
        self.assertEqual([each["id"] for each in found], ["m000000", "m000002"])
        self.assertIn("507 queue 0 is full", found[0]["story"])
        self.assertNotIn("body", found[0])
        (message,) = page.post("/api/message", {"queue": queue, "id": f"@{found[1]['position']}", "body_bytes": 65536}).json["results"]
        self.assertEqual((message["id"], message["body"]), ("m000002", "Mg=="))
        self.assertEqual(page.post("/api/message", {"queue": queue, "id": "none"}).status, 404)
        self.assertEqual(self.saved(queue), before)

    @long
    def test_a_body_that_is_too_large_for_an_answer_says_what_to_do(self):
        queue = self.parked(1, "bad")
        (message,) = self.ok("parked", "save", queue, "-").objects
        message["body"] = base64.b64encode(bytes(13 * 2**20)).decode()
        self.ok("parked", "load", "-", stdin=json.dumps(message) + "\n")
        page = self.web(queue)
        for size, status in ((65536, 200), (13 * 2**20, 502)):
            answer = page.post("/api/message", {"queue": queue, "id": "@2", "body_bytes": size})
            self.assertEqual(answer.status, status)
        self.assertEqual(answer.json["error"],
                         "the answer is larger than 16 MB: ask for fewer messages or fewer bytes of a body")

    def test_live_figures_come_as_events_and_by_polling(self):
        queue = self.parked(3, "bad")
        page = self.web(queue)
        connection = page.connect()
        connection.request("GET", f"/{page.api}/live", headers={"Cookie": page.cookie, "Sec-Fetch-Site": "same-origin"})
        answer = connection.getresponse()
        self.assertEqual(answer.headers["Content-Type"], "text/event-stream")
        depths = None
        while not depths:
            line = answer.readline()
            if line.startswith(b"data: "):
                depths = json.loads(line[6:])["depths"]
        connection.close()
        self.assertEqual([each["ready"] for each in depths if each["kind"] == "parked"], [3])
        self.assertEqual([each["ready"] for each in page.get("/api/state").json["depths"] if each["kind"] == "parked"], [3])

    def test_waits_have_the_time_when_the_first_one_is_due(self):
        queue, ns = self.queue(), self.queue()
        self.ok("topology", "declare", queue, "--namespace", ns, "--work-queue", "quorum", "--initial", "100s", "--jitter", "none")
        page = self.web(queue, "--namespace", ns)
        before_ms = time.time() * 1000
        rig("fill", ns + ".wait.100000", 3)
        (rung,) = page.await_state(lambda state: self.waiting(state["depths"] or []))
        self.assertEqual((rung["ready"], rung["delay_ms"], rung["late"]), (3, 100000, 0))
        self.assertGreater(rung["due_by_ms"], before_ms + 100000 - 1000)
        self.assertLess(rung["due_by_ms"], time.time() * 1000 + 100000 + 1000)

    def waiting(self, depths: list[dict]) -> list[dict]:
        """Returns the wait queues that have messages."""
        return [each for each in depths if each["kind"] == "waiting" and each["ready"]]

    def test_waits_are_shown_by_a_policy_or_by_the_management_api(self):
        queue, ns, policy = self.queue(), self.queue(), BUILD / f"command-policy-{self.queue()}.json"
        policy.write_text(json.dumps({"steps": "700s", "jitter": "none"}))
        self.addCleanup(policy.unlink)
        self.ok("topology", "declare", queue, "--namespace", ns, "--work-queue", "quorum", "--policy", policy)
        rig("fill", f"{ns}.wait.700000", 3)
        self.await_ready(f"{ns}.wait.700000", at_least=3)
        page = self.web(queue, "--namespace", ns, BACKHOP_MANAGEMENT_URL="")
        self.assertEqual(self.waiting(page.await_state(lambda state: state["depths"])), [])
        api = os.environ.get("BACKHOP_MANAGEMENT_URL")
        for options in (("--policy", policy), *([("--management", api)] if api else [])):
            page = self.web(queue, "--namespace", ns, *options, BACKHOP_MANAGEMENT_URL="")
            (rung,) = self.waiting(page.await_state(lambda state: state["depths"]))
            self.assertEqual((rung["queue"], rung["ready"], rung["delay_ms"]), (f"{ns}.wait.700000", 3, 700000))
        self.web(queue, "--policy", "/nowhere.json").await_state(lambda state: "/nowhere.json" in state["problem"])
        page = self.web(queue, "--namespace", ns, "--policy", policy, BACKHOP_MANAGEMENT_URL="")
        found = page.post("/api/doctor", {"patience": "0s"}).json["results"]
        self.assertEqual([each["finding"] for each in found if "topology" in each["finding"]], [])

    def test_a_look_at_the_first_messages_says_so_and_changes_no_order(self):
        queue = self.parked(50, "bad")
        before = self.saved(queue)
        page = self.web("--allow", "replay", queue)
        for _ in range(2):  # the second look finds messages that the first one gave back
            snapshot = page.post("/api/groups", {"first": 20}).json
            self.assertEqual([group["count"] for group in snapshot["groups"]], [20])
            self.assertEqual(snapshot["queues"], {queue + ".parked": {"queue": queue + ".parked", "looked_at": 20, "messages": 50}})
            self.assertEqual(self.saved(queue), before)
        (whole,) = page.post("/api/groups", {"first": 0}).json["groups"]
        self.assertEqual(whole["count"], 50)
        (found,) = page.post("/api/replay", {"queue": queue, "dry_run": True}).json["results"]
        self.assertEqual(found["to_replay"], 50)  # an action never counts a part

    def test_a_call_ends_with_its_sub_command(self):
        """No other call wakes the program just then. It slept for a second, in each try; a busy machine delays some."""
        queue = self.parked(3, "bad")
        page = self.web(queue)

        def seconds(call: Callable[[], object]) -> float:
            begun = time.monotonic()
            call()
            return time.monotonic() - begun

        least, alone_s = LIMIT_S, 0.0
        for _ in range(30):
            alone_s = max(alone_s, seconds(lambda: self.ok("parked", "list", queue, "--json")))
            least = min(least, seconds(lambda: page.post("/api/groups", {"by": "error"})))
            if least < alone_s + 0.9:
                return
        self.fail(f"a call takes {least:.1f} s at least, and its sub-command {alone_s:.1f} s at most")

    def test_groups_of_the_first_queues_come_while_others_are_looked_at(self):
        first, second = self.parked(3, "bad"), self.parked(1, "worse")
        rig("fill", second + ".parked", MANY)
        self.await_ready(second + ".parked", MANY + 1)
        way = self.gate(deliveries=10)
        page = self.web("--uri", way.url, first, second)
        with ThreadPoolExecutor(1) as pool:
            look = pool.submit(page.post, "/api/groups", {"by": "error", "queues": [first, second]})
            part = self.next_part(page, way, 0)
            way.open()
        self.assertFalse(part["is_whole"], part)
        self.assertIn("bad", [each["error"] for each in part["groups"]])
        self.assertLess(sum(each["count"] for each in part["groups"]), MANY + 4)
        self.assertEqual(part["queue_count"], 2)
        self.assertTrue(look.result().json["is_whole"])
        self.assertEqual(sum(each["count"] for each in look.result().json["groups"]), MANY + 4)

    def next_part(self, page: Web, way: Gate, number: int) -> dict:
        """Lets messages of a look pass, one after the other, until it shows groups with a higher number. Returns these.

        A look shows its groups some time after its first message, at the next one.
        """
        part = {"number": number}

        def is_shown() -> bool:
            part.update(page.get("/api/groups").json)
            return part["number"] > number

        way.open_until(is_shown)
        return part

    def test_groups_so_far_come_while_a_queue_is_read(self):
        queue = self.parked(1, "bad")
        rig("fill", queue + ".parked", MANY)
        self.await_ready(queue + ".parked", MANY + 1)
        before = self.saved(queue)
        way = self.gate(deliveries=1000)
        page = self.web("--uri", way.url, queue)
        with ThreadPoolExecutor(1) as pool:
            look = pool.submit(page.post, "/api/groups", {"by": "error", "first": 0})
            parts = [self.next_part(page, way, 0)]
            parts.append(self.next_part(page, way, parts[0]["number"]))
            way.open()
        for part in parts:
            (of_queue,) = part["queues"].values()
            self.assertEqual(sum(each["count"] for each in part["groups"]), of_queue["looked_at"])
            self.assertEqual((of_queue["messages"], part["queues_done"], part["queue_count"]), (MANY + 1, 0, 1))
            self.assertFalse(part["is_whole"])
            self.assertLess(of_queue["looked_at"], MANY + 1)
        whole = look.result().json
        self.assertEqual(sum(each["count"] for each in whole["groups"]), MANY + 1, whole["notice"])
        self.assertEqual(self.saved(queue), before)

    def test_a_look_is_stopped_and_says_that_its_groups_are_a_part(self):
        queue = self.parked(1, "bad")
        rig("fill", queue + ".parked", MANY)
        self.await_ready(queue + ".parked", MANY + 1)
        way = self.gate(deliveries=1000)
        page = self.web("--uri", way.url, queue)
        self.assertEqual(page.post("/api/stop", {"look": True}).status, 404)
        with ThreadPoolExecutor(1) as pool:
            look = pool.submit(page.post, "/api/groups", {"by": "error", "first": 0})
            self.next_part(page, way, 0)
            self.assertEqual(page.post("/api/stop", {"look": True}).status, 200)
            for _ in range(3):  # again and again: it is not killed
                self.assertIn(page.post("/api/stop", {"look": True}).status, (200, 404))
            way.open()
            part = look.result()
        self.assertEqual((part.status, part.json["is_whole"], part.json["is_stopped"]), (200, False, True))
        (of_queue,) = part.json["queues"].values()
        self.assertEqual(sum(each["count"] for each in part.json["groups"]), of_queue["looked_at"])
        self.assertLess(of_queue["looked_at"], MANY + 1)
        self.assertEqual(page.get("/api/groups").json, part.json)
        self.assertEqual(self.saved(queue)[1:], [f"m{i:06}" for i in range(MANY)])

    @long
    def test_a_look_reads_no_more_than_20000_of_a_queue_unless_it_is_asked_to(self):
        queue = self.parked(1, "bad")
        rig("fill", queue + ".parked", 20500)
        self.await_ready(queue + ".parked", 20501)
        page = self.web(queue)
        (of_queue,) = page.post("/api/groups", {}).json["queues"].values()
        self.assertEqual((of_queue["looked_at"], of_queue["messages"]), (20000, 20501))
        (first,) = page.post("/api/samples", {"queue": queue, "limit": 1}).json["results"]
        self.assertEqual(first["id"], "m000000")
        self.assertEqual(self.saved(queue)[:3], ["m000000", "m000000", "m000001"])
        self.assertEqual(len(self.saved(queue)), 20501)

    @long
    @managed
    def test_without_names_it_finds_the_queues(self):
        queue = self.parked(1, "bad")
        page = self.web("--management", os.environ["BACKHOP_MANAGEMENT_URL"])
        while not page.get("/api/state").json["depths"]:
            time.sleep(0.1)
        groups = page.post("/api/groups", {}).json["groups"]
        self.assertIn(queue + ".parked", [group["queue"] for group in groups])

    def test_doctor_has_commands_to_copy(self):
        queue = self.parked(1, "bad")
        rig("delete", queue)
        results = self.web(queue).post("/api/doctor", {"patience": "0s"}).json["results"]
        self.assertIn(f"backhop topology declare {queue}", [each["command"] for each in results])

    def test_hostile_texts_are_data(self):
        hostile = '<img src=x onerror=alert(1)>\u202e\x1b[31m"</script>'
        page = self.web(self.parked(1, hostile))
        (group,) = page.post("/api/groups", {"by": "error"}).json["groups"]
        self.assertEqual(page.post("/api/groups", {"by": "error"}).headers["Content-Type"], "application/json")
        self.assertIn("<img src=x", group["error"])


class Actions(WebCase):
    def history(self, page: Web) -> list[dict]:
        return page.get("/api/history").json["actions"]

    def test_a_replay_is_counted_first_and_refused_if_the_count_moved(self):
        queue = self.parked(5, "bad", "worse")
        page = self.acting(queue)
        wanted = {"queue": queue, "where": ["error=bad"]}
        (found,) = page.post("/api/replay", {**wanted, "dry_run": True}).json["results"]
        self.assertEqual((found["to_replay"], found["parked"]), (3, 5))
        rig("park", queue, 1, "bad")
        job = page.post("/api/replay", {**wanted, "expect": 3}).json
        ended = page.await_job(job["job"])
        self.assertEqual((ended["state"], ended["result"]), ("stopped", None))
        self.assertIn("4 messages are selected now, and not 3: nothing was done", ended["problem"])
        slow = page.await_job(page.post("/api/replay", {**wanted, "expect": 4, "rate": 1e-7}).json["job"])
        self.assertIn("1e-07 a second is too slow", slow["problem"])
        self.assertEqual(self.history(page), [])
        ended = page.await_job(page.post("/api/replay", {**wanted, "expect": 4}).json["job"])
        self.assertEqual((ended["state"], ended["result"]["replayed"]), ("done", 4))
        self.assertEqual(len(drain(queue, 4)), 4)
        self.assertEqual([each["error"] for each in self.ok("parked", "list", queue, "--json").objects], ["worse"])
        (action,) = self.history(page)
        self.assertEqual((action["action"], action["messages"], action["replayed"], action["where"], action["code"]), ("replay", 4, 4, ["error=bad"], 0))
        self.assertTrue(action["user"])

    @long
    def test_a_replay_is_stopped_and_goes_on(self):
        queue = self.parked(40, "bad")
        before = self.saved(queue)
        page = self.acting(queue)
        number = page.post("/api/replay", {"queue": queue, "expect": 40, "rate": 2}).json["job"]
        page.await_replayed(number, 3)
        self.assertEqual(page.post("/api/replay", {"queue": queue, "expect": 1}).status, 409)
        self.assertEqual(page.post("/api/samples", {"queue": queue + ".parked"}).status, 409)
        self.assertEqual(page.post("/api/stop", {"job": number}).json["state"], "stopping")
        ended = page.await_job(number)
        done = ended["result"]["replayed"]
        self.assertEqual(ended["state"], "cancelled")
        self.assertEqual(self.history(page)[0]["code"], INTERRUPTED)
        (rest,) = page.post("/api/replay", {"queue": queue, "dry_run": True}).json["results"]
        self.assertEqual(rest["to_replay"], 40 - done)
        page.await_job(page.post("/api/replay", {"queue": queue, "expect": 40 - done}).json["job"], "done")
        self.assertEqual([line.split("\t")[0] for line in drain(queue, 40)], before)

    def test_a_drop_saves_and_a_load_brings_back(self):
        queue = self.parked(4, "bad", "worse")
        page = self.acting(queue)
        wanted = {"queue": queue, "where": ["error=bad"]}
        (found,) = page.post("/api/drop", {**wanted, "dry_run": True}).json["results"]
        self.assertEqual(found["to_drop"], 2)
        refused = page.await_job(page.post("/api/drop", {**wanted, "expect": 3}).json["job"])
        self.assertEqual(refused["state"], "stopped")
        self.assertEqual(page.get("/api/saved").json["saved"], [])
        self.assertEqual(len(self.saved(queue)), 4)
        ended = page.await_job(page.post("/api/drop", {**wanted, "expect": 2}).json["job"])
        self.assertEqual((ended["state"], ended["result"]["messages"]), ("done", 2))
        self.assertEqual(self.saved(queue), ["m000001", "m000003"])
        lines = page.get(f"/api/saved/{ended['file']}").body.splitlines()
        self.assertEqual([json.loads(line)["id"] for line in lines], ["m000000", "m000002"])
        load = {"file": ended["file"]}
        (found,) = page.post("/api/load", {**load, "dry_run": True}).json["results"]
        self.assertEqual((found["to_load"], found["queues"]), (2, {queue + ".parked": 2}))
        self.assertEqual(page.post("/api/load", load).status, 400)
        refused = page.await_job(page.post("/api/load", {**load, "expect": 3}).json["job"])
        self.assertIn("2 messages are selected now, and not 3: nothing was done", refused["problem"])
        self.assertEqual(len(self.saved(queue)), 2)
        loaded = page.await_job(page.post("/api/load", {**load, "expect": 2}).json["job"])
        self.assertEqual((loaded["state"], loaded["result"]["loaded"], loaded["progress"]["to_load"]), ("done", 2, 2))
        self.assertEqual(len(self.saved(queue)), 4)
        os.symlink(ended["file"], f"{page.state}/saved/link.ndjson")
        os.mkfifo(f"{page.state}/saved/pipe.ndjson")
        self.assertEqual([each["loaded"] for each in page.get("/api/saved").json["saved"]], [2])
        self.assertIn("were loaded before", page.post("/api/load", {**load, "dry_run": True}).json["error"])
        self.assertEqual([each["action"] for each in self.history(page)], ["load", "drop"])
        self.assertEqual(page.post("/api/load", {"file": "none.ndjson", "dry_run": True}).status, 404)

    def test_a_proxy_s_user_is_in_the_history(self):
        queue = self.parked(1, "bad")
        page = Web("--allow", "replay", "--user-header", "X-User", queue, unix=True)
        self.addCleanup(page.__exit__, None, None, None)
        page.call = lambda *arguments, call=page.call, **more: call(*arguments, **{"X_User": "ana", **more})
        page.await_job(page.post("/api/replay", {"queue": queue, "expect": 1}).json["job"], "done")
        self.assertEqual(self.history(page)[0]["user"], "ana")

    def test_the_command_writes_the_same_history(self):
        queue = self.parked(3, "bad")
        with tempfile.TemporaryDirectory() as directory:
            file = directory + "/history"
            self.assertIn("3 messages are selected now, and not 2",
                          self.ends(TRY_AGAIN, "parked", "replay", queue, "--expect", 2, "--yes", "--history", file).stderr)
            self.assertFalse(os.path.exists(file))
            self.ok("parked", "replay", queue, "--limit", 1, "--expect", 1, "--yes", "--user", "ana\u202e", BACKHOP_HISTORY=file)
            self.ok("parked", "drop", queue, directory + "/file", "--yes", "--history", file)
            self.ok("parked", "load", directory + "/file", "--history", file)
            self.assertTrue(Path(file).read_text().isascii())  # S4-12
            self.assertEqual({Path(f"{directory}/file{end}").stat().st_mode & 0o777 for end in ("", ".loaded")}, {0o600})  # S4-14
            lines = [json.loads(line) for line in Path(file).read_text().splitlines()]
        self.assertEqual([(line["event"], line["action"]) for line in lines],
                         [(event, action) for action in ("replay", "drop", "load") for event in ("begun", "ended")])
        self.assertEqual(lines[0]["user"], "ana\u202e")
        self.assertEqual((lines[1]["replayed"], lines[3]["dropped"], lines[5]["loaded"]), (1, 2, 2))

    def test_nothing_is_done_if_the_history_cannot_be_written(self):
        queue = self.parked(1, "bad")
        self.assertIn("nothing was done", self.ends(73, "parked", "replay", queue, "--yes", "--history", "/nowhere/file").stderr)
        self.assertEqual(len(self.saved(queue)), 1)


class Ends(WebCase):
    @long
    def test_the_end_waits_for_no_process_that_has_only_started(self):
        queue = self.parked(1, "bad")
        for i in range(30):
            with Web(queue) as page:
                page.log_in()
                for _ in range(1 + i % 3):
                    self.assertEqual(page.get("/api/state").status, 200)
            self.assertEqual(page.problems, "")
