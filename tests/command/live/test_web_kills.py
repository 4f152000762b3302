"""`backhop web`, its actions and its broker are killed or end, and what goes on after that."""

import contextlib
import json
import os
import signal
import sys
import tempfile
from pathlib import Path

from harness import INTERRUPTED, LIMIT_S, TRY_AGAIN, Gate, broker_ctl, drain, long, rig
from webclient import Web, WebCase


@long
class Brokers(WebCase):
    def filled(self, count: int) -> str:
        """Makes a parked queue with one message that a worker parked and so many others, on the broker's disk."""
        if not os.environ.get("BACKHOP_BROKER_CTL"):
            self.skipTest("the broker cannot be killed")
        queue = self.parked(1, "bad")
        rig("fill", queue + ".parked", count)
        self.await_ready(queue + ".parked", count + 1)
        broker_ctl("save")
        return queue

    def test_a_killed_broker_ends_a_replay_and_the_rest_goes_on(self):
        queue = self.filled(3999)
        page = self.acting(queue)
        number = page.post("/api/replay", {"queue": queue, "expect": 4000, "rate": 100}).json["job"]
        self.await_ready(queue, at_least=200)
        broker_ctl("kill")
        ended = page.await_job(number)
        broker_ctl("start")
        self.assertEqual(ended["state"], "stopped")
        self.assertIn("the connection was lost", ended["problem"])
        self.assertLessEqual(ended["result"]["in_flight"], 512)
        self.assertEqual(page.get("/api/history").json["actions"][0]["code"], TRY_AGAIN)
        self.await_ready(queue + ".parked", at_least=1)
        (rest,) = page.post("/api/replay", {"queue": queue, "dry_run": True}).json["results"]
        self.assertLess(rest["to_replay"], 4000)
        page.await_job(page.post("/api/replay", {"queue": queue, "expect": rest["to_replay"]}).json["job"], "done")
        bodies = [line.split("\t")[4] for line in drain(queue, 4000)]
        self.assertEqual(set(bodies), {str(number) for number in range(3999)})
        self.assertLessEqual(len(bodies), 4000 + 2 * 512)  # acknowledgements that the broker had not processed come on top

    def test_a_killed_broker_ends_a_drop_and_a_load_doubles_some_hundreds_at_most(self):
        def begin() -> tuple[str, Web]:
            queue = self.filled(3999)
            return queue, self.acting(queue)

        queue, page, job, mark = self.drop_in_the_middle(begin, 4000, 1024)
        (pid,) = (pid for pid in page.children() if "drop" in Path(f"/proc/{pid}/cmdline").read_text().split("\0"))
        os.kill(pid, signal.SIGSTOP)
        broker_ctl("kill")
        os.kill(pid, signal.SIGCONT)
        self.assertEqual(page.await_job(job["job"])["state"], "stopped")
        broker_ctl("start")
        self.await_ready(queue + ".parked", at_least=1)
        (found,) = page.post("/api/load", {"file": job["file"], "dry_run": True}).json["results"]
        self.assertEqual(found["to_load"], int(mark.read_text().split()[0]))
        page.await_job(page.post("/api/load", {"file": job["file"], "expect": found["to_load"]}).json["job"], "done")
        bodies = [line.split("\t")[4] for line in drain(queue + ".parked", 4000)]
        self.assertEqual(set(bodies), {str(number) for number in range(3999)})
        self.assertLessEqual(len(bodies), 4000 + 2 * 512)


@long
class Restarts(WebCase):
    """The program ends while an action runs. Then it is started again with the same state directory."""

    def setUp(self):
        self.state = self.enterContext(tempfile.TemporaryDirectory())

    def act(self, queue: str, way: Gate | None = None, allow: str = "replay,drop") -> Web:
        return self.web("--allow", allow, queue, *(("--uri", way.url) if way else ()), state=self.state)

    def dropped(self, count: int) -> tuple[str, str, Gate]:
        """Returns a queue whose parked messages are dropped, their file, and a way on which few confirms pass."""
        queue = self.parked(1, "bad")
        rig("fill", queue + ".parked", count - 1)
        self.await_ready(queue + ".parked", count)
        way = self.gate(confirms=1)
        page = self.act(queue, way)
        file = page.await_job(page.post("/api/drop", {"queue": queue, "expect": count}).json["job"], "done")["file"]
        page.kill()
        return queue, file, way

    def act_on_many(self) -> tuple[str, Web]:
        queue = self.parked(1, "bad")
        rig("fill", queue + ".parked", 9999)
        self.await_ready(queue + ".parked", 10000)
        return queue, self.act(queue)

    def test_a_replay_goes_on_by_itself_after_a_kill_and_does_what_was_typed(self):
        queue = self.parked(60, "bad")
        before = self.saved(queue)
        page = self.act(queue)
        number = page.post("/api/replay", {"queue": queue, "expect": 50, "limit": 50, "rate": 5}).json["job"]
        page.await_replayed(number, 5)
        page.kill()
        again = self.act(queue)
        (job,) = again.get("/api/state").json["jobs"]
        self.assertEqual((job["action"], job["queue"]), ("replay", queue))
        ended = again.await_job(job["job"])
        self.assertEqual(ended["state"], "done", ended)
        self.assertGreaterEqual(ended["done_before"], 5)
        self.assertEqual(ended["done_before"] + ended["result"]["replayed"], 50)
        self.assertEqual([line.split("\t")[0] for line in drain(queue, 50)], before[:50])
        self.assertEqual(self.saved(queue), before[50:])
        self.assertEqual([(each["code"], each["messages"]) for each in again.get("/api/history").json["actions"]],
                         [(0, 50 - ended["done_before"]), (INTERRUPTED, 50)])
        self.assertEqual(os.listdir(self.state + "/jobs"), [])

    def test_it_goes_on_after_an_orderly_end_too(self):
        queue = self.parked(40, "bad")
        page = self.act(queue)
        page.await_replayed(page.post("/api/replay", {"queue": queue, "expect": 40, "rate": 5}).json["job"], 5)
        for pid in [page.process.pid, *page.children()]:  # as systemd ends a unit
            with contextlib.suppress(ProcessLookupError):  # the page has ended its children already
                os.kill(pid, signal.SIGTERM)
        page.process.wait(LIMIT_S)
        again = self.act(queue)
        again.await_job(1, "done")
        self.assertEqual(len(drain(queue, 40)), 40)

    def test_it_does_not_go_on_with_another_number(self):
        queue = self.parked(40, "bad")
        page = self.act(queue)
        page.await_replayed(page.post("/api/replay", {"queue": queue, "expect": 40, "rate": 5}).json["job"], 5)
        page.kill()
        self.await_ready(queue + ".parked", 1)
        rig("fill", queue + ".parked", 3)
        again = self.act(queue)
        ended = again.await_job(1)
        self.assertEqual(ended["state"], "stopped")
        self.assertIn(f"{43 - ended['done_before']} messages are selected now, and not {40 - ended['done_before']}: nothing was done", ended["problem"])

    def test_a_killed_action_is_shown_as_interrupted(self):
        queue = self.parked(60, "bad")
        page = self.act(queue)
        page.await_replayed(page.post("/api/replay", {"queue": queue, "expect": 60, "rate": 3}).json["job"], 5)
        page.kill("replay")
        again = self.act(queue)
        ended = again.await_job(1, "interrupted")
        self.assertIn("it was killed", ended["problem"])
        (rest,) = again.post("/api/replay", {"queue": queue, "dry_run": True}).json["results"]
        again.await_job(again.post("/api/replay", {"queue": queue, "expect": rest["to_replay"]}).json["job"], "done")
        ids = [line.split("\t")[0] for line in drain(queue, 60)]
        self.assertEqual(len(set(ids)), 60)
        self.assertEqual(os.listdir(self.state + "/jobs"), [])

    def test_jobs_of_another_broker_or_without_permission_do_not_go_on(self):
        queue = self.parked(60, "bad")
        page = self.act(queue)
        page.await_replayed(page.post("/api/replay", {"queue": queue, "expect": 60, "rate": 3}).json["job"], 5)
        page.kill()
        other = self.web("--allow", "replay", "--namespace", "other", queue, state=self.state)
        self.assertEqual(other.get("/api/state").json["jobs"], [])
        ended = self.act(queue, allow="drop").await_job(1, "interrupted")
        self.assertIn("--allow", ended["problem"])

    def test_an_action_that_was_stopped_stays_stopped(self):
        queue = self.parked(60, "bad")
        page = self.act(queue)
        number = page.post("/api/replay", {"queue": queue, "expect": 60, "rate": 3}).json["job"]
        page.await_replayed(number, 5)
        page.post("/api/stop", {"job": number})
        page.await_job(number, "cancelled")
        page.kill()
        self.assertEqual(self.act(queue).get("/api/state").json["jobs"], [])

    def test_a_load_goes_on_where_it_was(self):
        queue, file, way = self.dropped(3000)
        page = self.act(queue, way)
        page.post("/api/load", {"file": file, "expect": 3000})
        self.await_ready(queue + ".parked", 1)
        page.kill()
        way.open()
        ended = self.act(queue, way).await_job(1)
        self.assertEqual(ended["state"], "done", ended)
        self.assertEqual(len(self.saved(queue)), 3000)

    def test_a_killed_load_doubles_one_batch_at_most(self):
        queue, file, way = self.dropped(3000)
        page = self.act(queue, way)
        page.post("/api/load", {"file": file, "expect": 3000})
        way.open_until(lambda: int(rig("depth", queue + ".parked")[0]) >= 600)
        page.kill("load")
        way.open()
        again = self.act(queue, way)
        self.assertEqual(again.await_job(1, "interrupted")["action"], "load")
        (saved,) = again.get("/api/saved").json["saved"]
        self.assertGreaterEqual(saved["loaded"], 512)
        (rest,) = again.post("/api/load", {"file": file, "skip": saved["loaded"], "dry_run": True}).json["results"]
        self.assertEqual(rest["to_load"], 3000 - saved["loaded"])
        again.await_job(again.post("/api/load", {"file": file, "skip": saved["loaded"], "expect": rest["to_load"]}).json["job"], "done")
        self.assertLessEqual(len(self.saved(queue)) - 3000, 512)
        self.assertEqual(len(set(self.saved(queue))), 2999)  # m000000 is there twice

    def test_an_interrupted_drop_leaves_no_part_of_a_file(self):
        queue, way = self.parked(1, "bad"), self.gate(deliveries=10)
        rig("fill", queue + ".parked", 3000)
        self.await_ready(queue + ".parked", 3001)
        page = self.act(queue, way)
        page.post("/api/drop", {"queue": queue, "expect": 3001})
        way.open_until(lambda: os.listdir(self.state + "/saved"), step=100)
        page.kill("drop")
        way.open()
        again = self.act(queue, way)
        ended = again.await_job(1)
        self.assertEqual(ended["state"], "done", ended)  # it had not begun, so it goes on
        (saved,) = again.get("/api/saved").json["saved"]
        self.assertEqual(saved["file"], ended["file"])
        self.assertEqual(len(again.get(f"/api/saved/{ended['file']}").body.splitlines()), 3001)
        self.assertEqual(int(rig("depth", queue + ".parked")[0]), 0)

    def test_the_file_of_a_killed_drop_stays_whatever_the_history_has(self):
        """The file has the only copy of the messages that the drop took off their queue."""
        for lose in (lambda history: history.unlink(), lambda history: history.write_text("")):
            queue, page, job, _ = self.drop_in_the_middle(self.act_on_many, 10000, 256)
            file = job["file"]
            page.kill("drop")
            lose(Path(self.state, "history.ndjson"))
            self.await_returned(queue + ".parked")
            again = self.act(queue)
            self.assertIn("it was killed", again.await_job(1, "interrupted")["problem"])
            (rest,) = again.post("/api/load", {"file": file, "dry_run": True}).json["results"]
            again.await_job(again.post("/api/load", {"file": file, "expect": rest["to_load"]}).json["job"], "done")
            self.assertEqual(set(self.saved(queue)), {"m000000"} | {f"m{i:06}" for i in range(9999)})
            again.kill()

    def test_an_action_is_found_behind_any_number_of_later_ones(self):
        queue = self.parked(60, "bad")
        page = self.act(queue)
        page.await_replayed(page.post("/api/replay", {"queue": queue, "expect": 60, "rate": 3}).json["job"], 5)
        page.kill("replay")
        line = json.dumps({"event": "began", "action": "replay", "text": "x" * 3000})
        with open(Path(self.state, "history.ndjson"), "a") as history:
            for number in range(300):
                history.write(f'{line[:-1]}, "id": "{number:032}", "time_ms": 1}}\n')
        self.assertIn("it was killed", self.act(queue).await_job(1, "interrupted")["problem"])

    def test_no_message_is_lost_if_the_program_is_killed_again_and_again(self):
        """Each kill ends the program; every second one kills the replay too. Messages in flight may come twice."""
        count = int(os.environ.get("BACKHOP_WEB_MESSAGES", "4000"))
        queue = self.parked(1, "bad")
        rig("fill", queue + ".parked", count)
        self.await_ready(queue + ".parked", count + 1)
        page, kills = self.act(queue), 0
        while (rest := page.post("/api/replay", {"queue": queue, "dry_run": True}).json["results"][0]["to_replay"]) > count / 3 and kills < 6:
            number = page.post("/api/replay", {"queue": queue, "expect": rest, "rate": count / 20}).json["job"]
            page.await_replayed(number, count // 50)
            page.kill()
            page = self.act(queue)
            page.await_replayed(1, count // 50)  # it has gone on by itself
            page.kill("replay")
            page = self.act(queue)
            page.await_job(1, "interrupted")
            kills += 2
        self.assertGreater(kills, 2)
        (rest,) = page.post("/api/replay", {"queue": queue, "dry_run": True}).json["results"]
        page.await_job(page.post("/api/replay", {"queue": queue, "expect": rest["to_replay"]}).json["job"], "done")
        bodies = [line.split("\t")[4] for line in drain(queue, count + 1)]
        self.assertEqual(list(dict.fromkeys(bodies)), [str(number) for number in range(count)])
        doubled = len(bodies) - count - 1
        print(f"{count + 1} messages, {kills} kills: {doubled} came twice", file=sys.stderr)
        self.assertLessEqual(doubled, kills * (512 + 4096))
        self.assertEqual(self.saved(queue), [])
