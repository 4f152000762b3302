import base64
import contextlib
import json
import os
import re
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from harness import (BUILD, CANNOT_CREATE, DATA, INTERRUPTED, LIMIT_S, NO_INPUT, NO_PERMISSION, TRIES, TRY_AGAIN, UNAVAILABLE, USAGE,
                     LiveCase, SlowChannel, Terminal, backhop, broker_ctl, drain, dropped, long, rig, run)
from proxy import Proxy

MANY = int(os.environ.get("BACKHOP_MANY", "3000"))  # messages for tests that are about many of them
SLOW = MANY // 60  # of these a second, so that a kill comes in the middle, also of a busy machine


def ids(lines):
    return [line.split("\t")[0] for line in lines]


class Looking(LiveCase):
    def test_a_list_groups_by_error_with_numbers_folded_and_reason(self):
        queue = self.parked(6, "507 queue %d is full", "-TimeoutError: no answer from %d", "bad")
        groups = self.ok("parked", "list", queue, "--json").objects
        self.assertEqual(groups, self.ok("parked", "list", queue, queue + ".parked", queue, "--json").objects)
        self.assertEqual([(g["error"], g["class"], g["count"], g["least_attempts"], g["reason"]) for g in groups],
                         [("# queue # is full", "", 2, 1, "permanent"), ("TimeoutError: no answer from #", "TimeoutError", 2, 2,
                          "permanent"), ("bad", "", 2, 1, "permanent")])
        table = self.ok("parked", "list", queue + ".parked").stdout
        self.assertIn("TimeoutError: no answer from #", table)
        self.assertTrue(table.endswith("6 messages\n"))
        with Terminal("parked", "list", queue, columns=80) as narrow:
            narrow.wait()
        self.assertIn("\r\n       TimeoutError: no answer from #\r\n", narrow.seen)

    def test_o16_a_list_fits_80_columns(self):
        error = "TimeoutError: POST https://billing.internal/v2/charge timed out after %d ms, while the upstream of eu-west-1 was busy"
        queue = self.parked(2, error)
        with Terminal("parked", "list", queue, columns=80, NO_COLOR="1") as narrow:
            narrow.wait()
        lines = narrow.seen.split("\r\n")
        self.assertLessEqual(max(map(len, lines)), 80)
        self.assertIn(error.replace("%d", "#").replace("v2", "v#").replace("-1", "-#"), " ".join(line.strip() for line in lines))
        self.assertRegex(lines[2], r"^ +2  \S+.parked +permanent +1 +\d+ s ago")
        self.assertNotIn("an id", lines[0])
        wide = self.ok("parked", "list", queue, "--wide").stdout
        self.assertIn("m000000", wide)
        self.assertRegex(wide, r"\d{4}-\d\d-\d\d \d\d:\d\d")

    def test_p4_5_a_queue_with_many_errors_hides_no_other(self):
        hostile, other = self.queue(), self.queue()
        for queue in (hostile, other):
            rig("declare", queue + ".parked", "quorum", "x-delivery-limit=1000000000", "x-overflow=reject-publish")
        words = [f"{chr(97 + i // 26)}{chr(97 + i % 26)}z" for i in range(220)]
        lines = "".join(json.dumps({"queue": f"{queue}.parked", "headers": [["backhop-error", "S", error], ["backhop-parked", "S", reason]],
                                    "body": "eA=="}) + "\n"
                        for queue, error, reason in [*((hostile, f"no {word}", "exhausted") for word in words),
                                                     *((other, "timeout", "permanent") for _ in range(7))])
        self.ok("parked", "load", "-", stdin=lines)
        for queues in ((hostile, other), (other, hostile)):
            listed = self.ok("parked", "list", *queues, "--json").objects
            self.assertEqual(sum(each["count"] for each in listed), 227)
            self.assertEqual([(each["queue"], each["count"], each["reason"]) for each in listed if each["error"] == "timeout"],
                             [(other + ".parked", 7, "permanent")])
            rest = [each for each in listed if each.get("rest")]
            self.assertEqual([(each["queue"], each["error"], each["count"], each["reason"]) for each in rest],
                             [(hostile + ".parked", "(other errors)", 20, "several")])
        shown = self.ok("parked", "list", other, hostile, "--json", "--progress").objects
        self.assertTrue([each for each in shown if each.get("rest")])
        self.assertIn('\n227 messages\nAt most 200 kinds of errors are shown of each queue; "(other errors)" has the others.\n',
                      self.ok("parked", "list", other, hostile).stdout)
        self.assertNotIn("kinds", self.ok("parked", "list", other).stdout)

    def test_a_queue_that_cannot_be_looked_at_hides_no_other(self):
        queue, foreign = self.parked(1, "bad"), self.queue()
        rig("declare", foreign + ".parked", "quorum", "x-delivery-limit=5")
        ran = self.ends(UNAVAILABLE, "parked", "list", foreign, queue, "--json")
        self.assertEqual([group["error"] for group in ran.objects], ["bad"])
        self.assertIn(f'"{foreign}.parked" was not declared by Backhop', ran.stderr)

    def test_conditions_select(self):
        queue = self.parked(6, "507 queue %d is full", "-TimeoutError: no answer from %d", "bad")
        for conditions, count in ((["error~TIMEOUT"], 2), (["attempts>=2"], 2), (["class=TimeoutError"], 2), (["error=bad"], 2),
                                  (["error!~queue"], 4), (["age>1h"], 0), (["age<1h"], 6), (["id=m000003"], 1),
                                  (["header.backhop-attempts=1"], 4), (["routing-key=" + queue, "error!=bad"], 4),
                                  (["reason=poison"], 0), (["replays=0"], 6)):
            with self.subTest(conditions):
                options = [word for each in conditions for word in ("--where", each)]
                groups = self.ok("parked", "list", queue, "--json", *options).objects
                self.assertEqual(sum(group["count"] for group in groups), count)
        self.assertIn("no condition", self.ends(USAGE, "parked", "list", queue, "--where", "errror~x").stderr)

    def test_a_message_is_shown_with_its_story_and_its_body_only_on_request(self):
        queue = self.parked(3, "-TimeoutError: no answer from %d")
        text = self.ok("parked", "show", queue, "m000002").stdout
        self.assertIn("It failed 2 times", text)
        self.assertIn("its body has 1 bytes (--body shows it)", text)
        self.assertNotIn("Body", text)
        first = int(self.saved(queue)[0][1:])
        self.assertTrue(self.ok("parked", "show", queue, "@1", "--body").stdout.endswith(f"Body\n{first}\n"))
        self.assertNotIn("body", self.ok("parked", "show", queue, "@1", "--json").objects[0])
        self.ends(NO_INPUT, "parked", "show", queue, "nobody")

    def test_what_strangers_write_does_not_control_the_terminal(self):
        queue = self.parked(1, "evil \x1b]0;owned\x07 \x9b31m\r\nsecond line")
        for command in ("list",), ("show", "m000000"), ("save", "-"):
            text = self.ok("parked", command[0], queue, *command[1:]).stdout
            self.assertFalse([character for character in text if ord(character) < 32 and character != "\n"], text)
            self.assertNotIn("\x9b", text)

    @long
    def test_a_hundred_looks_change_neither_order_nor_number(self):
        queue = self.parked(50, "bad")
        before = [self.ok("parked", "show", queue, f"@{place}", "--json").objects[0]["id"] for place in (1, 2, 50)]
        for _ in range(100):
            self.ok("parked", "list", queue)
        after = [self.ok("parked", "show", queue, f"@{place}", "--json").objects[0]["id"] for place in (1, 2, 50)]
        self.assertEqual(before, after)
        self.assertEqual(len(set(ids(drain(queue + ".parked", 50)))), 50)

    @long
    def test_a_look_that_is_interrupted_or_killed_changes_neither_order_nor_number(self):
        queue = self.queue()
        rig("park", queue, 1, "bad")
        rig("fill", queue + ".parked", MANY)
        for end, delay in ((signal.SIGINT, 0.05), (signal.SIGKILL, 0.05), (signal.SIGTERM, 0.1), (signal.SIGKILL, 0.1),
                           (signal.SIGKILL, 0.15), (signal.SIGKILL, 0.2)):
            with backhop("parked", "list", queue) as process:
                time.sleep(delay)  # anywhere: whether it is still looking is no matter
                process.send_signal(end)
                process.wait(LIMIT_S)
        self.ok("parked", "list", queue)
        found = ids(drain(queue + ".parked", MANY + 1))[1:]
        self.assertEqual(found, [f"m{i:06}" for i in range(MANY)])

    def test_a_first_look_that_is_killed_changes_no_order(self):
        queue = self.queue()
        rig("park", queue, 1, "bad")
        rig("fill", queue + ".parked", MANY)
        for delay in (0.02, 0.05, 0.1):
            with backhop("parked", "list", queue, "--first", MANY // 2) as process:
                time.sleep(delay)
                process.send_signal(signal.SIGKILL)
                process.wait(LIMIT_S)
        self.assertEqual(ids(drain(queue + ".parked", MANY + 1))[1:], [f"m{i:06}" for i in range(MANY)])

    def test_messages_that_are_slow_to_come_are_seen(self):
        queue = self.parked(30, "bad")
        with contextlib.closing(SlowChannel(deliveries=10)) as way:
            listed = self.ok("parked", "list", queue, "--uri", way.url, "--json").objects
        self.assertEqual(way.held_frames, 20 * 3)  # a method, a header and a body each
        self.assertEqual([group["count"] for group in listed], [30])
        self.assertEqual(len(drain(queue + ".parked", 30)), 30)

    @long
    def test_a_queue_that_does_not_answer_the_broker_is_not_called_empty(self):
        """The broker itself reports 0 messages and 0 consumers after 10 s. The queue goes on when a consumer comes."""
        queue = self.parked(3, "bad")
        hold = """Queue = whereis(list_to_atom("%2F_QUEUE.parked")), sys:suspend(Queue), spawn(fun() -> (fun Wait() ->
            {_, Sent} = process_info(Queue, messages),
            case string:find(io_lib:format("~p", [Sent]), "checkout") of
                nomatch -> timer:sleep(50), Wait();
                _ -> sys:resume(Queue)
            end end)() end)."""
        broker_ctl("eval", hold.replace("QUEUE", queue))
        try:
            ran = self.ok("parked", "list", queue, "--json")
        finally:
            broker_ctl("eval", f'sys:resume(whereis(list_to_atom("%2F_{queue}.parked"))).')
        self.assertEqual([group["count"] for group in ran.objects], [3])

    def test_a_queue_that_drops_what_was_looked_at_is_not_looked_at(self):
        queue = self.queue()
        rig("declare", queue + ".parked", "quorum")
        rig("fill", queue + ".parked", 1)
        ran = self.ends(UNAVAILABLE, "parked", "list", queue) if self.version >= (4, 0) else self.ok("parked", "list", queue)
        if self.version >= (4, 0):
            self.assertIn("delivery-limit", ran.stderr)
            self.ok("parked", "list", queue, "--any-queue")

    def test_a_queue_that_is_not_there_is_named(self):
        self.assertIn('no queue "nowhere.parked"', self.ends(UNAVAILABLE, "parked", "list", "nowhere").stderr)


class Unroutable(LiveCase):
    """O5: the unroutable queue is listed, shown, saved, replayed and dropped like a parked queue."""

    def unroutable(self, *queues: str) -> str:
        """Returns an unroutable queue of its own with a message of each work queue."""
        ns = self.queue()
        self.ok("topology", "declare", ns, "--namespace", ns, "--work-queue", "quorum")
        lines = ""
        for number, queue in enumerate(queues):
            headers = [["backhop-queue", "S", queue], ["backhop-id", "S", f"u{number}"], ["backhop-attempts", "l", 2]]
            lines += json.dumps({"queue": "", "properties": {"message-id": f"u{number}"}, "headers": headers, "body": "eA=="}) + "\n"
        self.ok("parked", "load", "-", "--to", f"{ns}.unroutable", stdin=lines)
        return ns

    @long
    def test_o5_the_five_commands_take_the_unroutable_queue(self):
        orders, emails, gone = self.queue(), self.queue(), self.queue()
        ns = self.unroutable(orders, emails, gone, orders)
        queue = f"{ns}.unroutable"
        for name in (orders, emails):
            self.ok("topology", "declare", name, "--namespace", ns, "--work-queue", "quorum")
        self.assertIn("4 messages\n", self.ok("parked", "list", queue).stdout)
        self.assertIn("Message 2", self.ok("parked", "show", queue, "u1").stdout)
        text = self.ok("parked", "replay", queue, "--dry-run").stdout
        self.assertIn(f'3 messages of 4 in "{queue}" would go to their work queues\n1 message cannot go', text)
        self.assertIn("3 of 3 replayed", self.ok("parked", "replay", queue, "--yes").stdout)
        self.assertEqual(ids(drain(orders, 2)), ["u0", "u3"])
        self.assertEqual(ids(drain(emails, 1)), ["u1"])
        with tempfile.TemporaryDirectory() as place:
            saved = Path(place) / "dropped"
            self.ok("parked", "drop", queue, saved, "--yes")
            self.assertEqual(json.loads(saved.read_text())["id"], "u2")

    def test_o5_a_header_reaches_no_queue_that_is_no_work_queue_of_the_namespace(self):
        secret = self.queue()
        rig("declare", secret, "classic")
        ns = self.unroutable(secret)
        self.assertIn("0 of 0 replayed", self.ok("parked", "replay", f"{ns}.unroutable", "--yes").stdout)
        self.assertEqual(drain(secret, 0), [])
        self.assertIn("1 message\n", self.ok("parked", "list", f"{ns}.unroutable").stdout)

    def test_w2_a_copy_that_federation_brought_stays(self):
        queue = self.queue()
        ns = self.unroutable(queue)
        self.ok("topology", "declare", queue, "--namespace", ns, "--work-queue", "quorum")
        brought = ["x-received-from", "A", [["F", [["uri", "S", "amqp://up"], ["exchange", "S", f"{ns}.return"]]]]]
        line = {"queue": "", "headers": [["backhop-queue", "S", queue], ["backhop-id", "S", "copy"], brought], "body": "eA=="}
        self.ok("parked", "load", "-", "--to", f"{ns}.unroutable", stdin=json.dumps(line) + "\n")
        self.assertIn("1 message cannot go: no work queue of theirs exists, or federation brought them;",
                      self.ok("parked", "replay", f"{ns}.unroutable", "--dry-run").stdout)
        self.assertIn("1 of 1 replayed", self.ok("parked", "replay", f"{ns}.unroutable", "--yes").stdout)
        self.assertEqual(ids(drain(queue, 1)), ["u0"])

    def test_o5_to_names_a_queue_for_all(self):
        other, ns = self.queue(), self.unroutable("nowhere", "nowhere")
        rig("declare", other, "classic")
        self.ok("parked", "replay", f"{ns}.unroutable", "--to", other, "--yes")
        self.assertEqual(ids(drain(other, 2)), ["u0", "u1"])


class Replaying(LiveCase):
    @long
    def test_o6_a_queue_that_drops_messages_is_noticed(self):
        queue, tiny = self.parked(8, "bad"), self.queue()
        rig("declare", tiny, "classic", "x-max-length=3")
        ran = self.ends(TRY_AGAIN, "parked", "replay", queue, "--to", tiny, "--limit", 6, "--yes")
        self.assertIn("drops messages", ran.stderr)
        self.assertRegex(ran.stdout, rf'^6 of 6 replayed to "{tiny}"; 3 of them are gone; 0 of them parked again\.')

    def test_o7_a_row_of_the_list_can_be_replayed(self):
        queue = self.parked(9, "HTTP 503 from payments-%d", "timed out after %d503 ms", "bad")
        for group in self.ok("parked", "list", queue, "--json").objects:
            ran = self.ok("parked", "replay", queue, "--like", group["id"], "--dry-run", "--json").objects[-1]
            self.assertEqual((group["error"], ran["to_replay"]), (group["error"], 3))
        self.assertIn("no message", self.ends(NO_INPUT, "parked", "list", queue, "--like", "nobody").stderr)
        self.ok("parked", "replay", queue, "--like", "m000000", "--yes")
        self.assertEqual(sorted(ids(drain(queue, 3))), ["m000000", "m000003", "m000006"])

    @long
    def test_o9_a_lost_connection_names_the_messages_that_may_come_twice(self):
        queue = self.parked(200, "bad")
        with contextlib.closing(Proxy(os.environ["AMQP_URL"])) as way:
            command = [BUILD / "backhop", "parked", "replay", queue, "--rate", "5", "--yes", "--uri", way.url]
            with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as replay:
                self.await_ready(queue, at_least=1)
                way.cut()
                error = replay.communicate(timeout=LIMIT_S)[1]
        self.assertEqual(replay.returncode, TRY_AGAIN, error)
        self.assertRegex(error, r"\d+ messages? in flight: they may come twice.* the same command goes on")

    def test_o19_messages_that_another_command_took_are_counted(self):
        queue = self.parked(60, "bad")
        with Terminal("parked", "replay", queue) as terminal:
            terminal.expect("Type 60 to")
            self.ok("parked", "replay", queue, "--limit", 20, "--yes")
            terminal.type("60\r")
            self.assertEqual(terminal.wait(), 0)
        self.assertIn("40 of 60 replayed", terminal.seen)
        self.assertIn("another consumer or command took 20 messages", terminal.seen)

    def test_a_look_at_a_limited_replay_lists_what_would_go(self):
        queue = self.parked(8, "bad")
        for limit, lines, has_more in ((3, 3, False), (5, 5, False), (6, 5, True), (0, 0, False)):
            shown = self.ok("parked", "replay", queue, "--limit", limit, "--dry-run").stdout
            self.assertEqual((len(re.findall(r"^ +@", shown, re.M)), "  ...\n" in shown), (lines, has_more), shown)

    def test_a_replay_to_the_queue_itself_is_refused(self):
        queue = self.parked(2, "bad")
        before = self.saved(queue)
        ran = self.ends(USAGE, "parked", "replay", queue, "--to", queue + ".parked", "--yes")
        self.assertIn(f'the messages are in "{queue}.parked" already', ran.stderr)
        self.assertEqual(self.saved(queue), before)

    def test_o4_a_limit_of_0_replays_nothing(self):
        queue = self.parked(2, "bad")
        ran = self.ok("parked", "replay", queue, "--limit", 0, "--yes", "--json").objects[-1]
        self.assertEqual(ran["replayed"], 0)
        drain(queue + ".parked", 2)

    def test_a_selection_goes_home_in_its_order_and_the_rest_stays_in_its_own(self):
        queue = self.parked(9, "507 queue %d is full", "TimeoutError: %d", "bad")
        order = ids(self.saved(queue))
        ran = self.ok("parked", "replay", queue, "--where", "error~full", "--limit", 2, "--yes", "--json").objects[-1]
        self.assertEqual((ran["replayed"], ran["to"], ran["stopped"]), (2, queue, ""))
        first, second = [each for each in order if each in ("m000000", "m000003", "m000006")][:2]
        self.assertEqual([line.split("\t")[:4] for line in drain(queue, 2)],
                         [[first, "", "1", queue], [second, "", "1", queue]])
        self.assertEqual(ids(drain(queue + ".parked", 7)), [each for each in order if each not in (first, second)])

    def test_a_dry_run_counts_and_does_nothing(self):
        queue = self.parked(9, "507 queue %d is full", "bad")
        text = self.ok("parked", "replay", queue, "--where", "error=bad", "--dry-run").stdout
        self.assertIn(f'4 messages of 9 in "{queue}.parked" would go to "{queue}"', text)
        self.assertIn("@", text)
        self.assertEqual(len(drain(queue + ".parked", 9)), 9)

    def test_the_count_is_to_be_typed(self):
        queue = self.parked(2, "bad")
        self.assertIn("--yes", self.ends(USAGE, "parked", "replay", queue).stderr)
        with Terminal("parked", "replay", queue) as terminal:
            terminal.expect(f'Type 2 to replay them to "{queue}": ')
            terminal.type("3\r")
            terminal.expect("nothing was done")
            self.assertEqual(terminal.wait(), TRY_AGAIN)
        with Terminal("parked", "replay", queue) as terminal:
            terminal.expect("Type 2 to")
            terminal.type("2\r")
            terminal.expect("2 of 2 replayed")
            self.assertEqual(terminal.wait(), 0)
        self.assertEqual(len(drain(queue, 2)), 2)

    def test_the_end_of_input_does_nothing(self):
        queue = self.parked(2, "bad")
        with Terminal("parked", "replay", queue) as terminal:
            terminal.expect("Type 2 to")
            terminal.type("\x04")
            terminal.expect("nothing was done")
            self.assertEqual(terminal.wait(), TRY_AGAIN)
        self.assertEqual(len(drain(queue + ".parked", 2)), 2)

    @long
    def test_it_stops_when_messages_are_parked_again(self):
        queue = self.parked(200, "bad")
        with subprocess.Popen([rig.program, "handle", queue, "500", "fail"]) as handler:
            try:
                ran = self.ends(TRY_AGAIN, "parked", "replay", queue, "--rate", 5, "--yes", "--json").objects[-1]
            finally:
                handler.terminate()
                handler.wait(LIMIT_S)
        self.assertIn("parked again", ran["stopped"])
        self.assertGreaterEqual(ran["parked_again"], 3)
        self.assertLess(ran["replayed"], 150)  # At this rate 150 take 30 s.
        back = set(ids(drain(queue, 0)))  # the handler was terminated: messages in hand may be there twice
        self.assertEqual(len(back | set(ids(drain(queue + ".parked", 200 - len(back))))), 200)

    @long
    def test_p4_4_it_stops_when_messages_wait_for_a_retry_again(self):
        queue = self.parked(100, "bad")
        environment = {**os.environ, "RIG_INITIAL_MS": "20000"}
        with subprocess.Popen([rig.program, "handle", queue, "500", "fail", "-slow"], env=environment) as handler:
            try:
                ran = self.ends(TRY_AGAIN, "parked", "replay", queue, "--rate", 10, "--yes")
            finally:
                handler.terminate()
                handler.wait(LIMIT_S)
        done, waiting = map(int, re.match(r"(\d+) of 100 replayed .*; 0 of them parked again.\nAbout (\d+) messages of them failed "
                                          r"and wait for a retry.\n", ran.stdout).groups())
        self.assertIn("stopped: replayed messages failed again and wait for a retry; the rest is parked as before", ran.stderr)
        self.assertTrue(3 <= waiting <= done < 100, ran.stdout)
        self.assertEqual(len(self.saved(queue)), 100 - done)

    def test_p4_4_the_end_says_when_the_last_message_is_parked_again(self):
        queue = self.parked(3, "bad")
        ran = self.ok("parked", "replay", queue, "--limit", 1, "--yes")
        self.assertRegex(ran.stdout, r"\nA message that fails each attempt is parked again after \d+ min.* at most, by the default policy")
        with tempfile.TemporaryDirectory() as place:
            policy = Path(place) / "policy"
            policy.write_text(json.dumps({"kind": "fixed", "initial": "20s", "jitter": "none", "max-attempts": 4}))
            ran = self.ok("parked", "replay", queue, "--limit", 1, "--yes", "--policy", policy)
            self.assertIn("\nA message that fails each attempt is parked again after 1 min at most, by its policy.\n", ran.stdout)
            ran = self.ok("parked", "replay", queue, "--yes", "--policy", policy, "--json").objects[-1]
        self.assertEqual((ran["parked_within_ms"], ran["waiting_again"]), (60000, 0))

    @long
    def test_p4_4_probes_of_doctor_are_no_failures(self):
        queue = self.parked(50, "bad")
        self.ok("topology", "declare", queue)
        command = [BUILD / "backhop", "parked", "replay", queue, "--rate", "3", "--yes", "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as replay:
            self.await_ready(queue, at_least=3)
            run("doctor", queue)
            ran = json.loads(replay.communicate(timeout=LIMIT_S)[0].splitlines()[-1])
        self.assertEqual((replay.returncode, ran["replayed"], ran["waiting_again"]), (0, 50, 0))

    def test_p4_8_a_count_that_fell_to_0_is_refused_as_any_other(self):
        queue = self.parked(1, "bad")
        drain(queue + ".parked", 1)
        ran = self.ends(TRY_AGAIN, "parked", "replay", queue, "--expect", 5, "--yes")
        self.assertIn("0 messages are selected now, and not 5: nothing was done", ran.stderr)

    @long
    def test_what_others_park_meanwhile_does_not_stop_it(self):
        queue = self.parked(40, "bad")
        command = [BUILD / "backhop", "parked", "replay", queue, "--rate", "4", "--yes", "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as replay:
            self.await_ready(queue, at_least=1)
            rig("fill", queue + ".parked", 10)  # with ids that are replayed too
            ran = json.loads(replay.communicate(timeout=LIMIT_S)[0].splitlines()[-1])
        self.assertEqual((replay.returncode, ran["replayed"], ran["parked_again"], ran["parked_by_others"]), (0, 40, 0, 10))
        self.assertEqual(ids(drain(queue + ".parked", 10)), [f"m{i:06}" for i in range(10)])
        self.assertEqual(len(drain(queue, 40)), 40)

    @long
    def test_a_ramp_holds_its_rates(self):
        queue = self.parked(8, "bad")
        begun = time.monotonic()
        self.ok("parked", "replay", queue, "--ramp", "2,1000", "--ramp-step", "2s", "--yes")
        self.assertGreater(time.monotonic() - begun, 1.9)  # four of them at two a second
        self.assertEqual(len(drain(queue, 8)), 8)

    @long
    def test_the_remaining_time_follows_the_ramp(self):
        queue, step_ms = self.parked(62, "bad"), 2000
        ran = self.ok("parked", "replay", queue, "--ramp", "2,60", "--ramp-step", f"{step_ms}ms", "--yes", "--json", "--progress")
        told = [each for each in ran.objects if each.get("remaining_ms") is not None]
        self.assertTrue(told)
        for each in told:  # Its own figures count, whatever the speed of the machine is.
            rest, early_ms = each["to_replay"] - each["replayed"], max(0, step_ms - each["elapsed_ms"])
            if rest * 1000 <= 2 * early_ms:
                wanted_ms = rest * 1000 / 2
            else:
                wanted_ms = early_ms + (rest - 2 * early_ms / 1000) * 1000 / 60
            self.assertAlmostEqual(each["remaining_ms"], wanted_ms, delta=2, msg=each)
        self.assertEqual(len(drain(queue, 62)), 62)

    def test_what_was_replayed_too_often_stays(self):
        queue = self.parked(2, "bad")
        first = self.saved(queue)[0]
        self.ok("parked", "replay", queue, "--limit", 1, "--yes")
        rig("handle", queue, 1, "fail")
        self.assertEqual(self.ok("parked", "replay", queue, "--max-replays", 1, "--yes", "--json").objects[-1]["replayed"], 1)
        self.assertEqual(ids(drain(queue + ".parked", 1)), [first])

    def test_another_queue_takes_them_where_it_exists(self):
        queue, other = self.parked(2, "bad"), self.queue()
        self.assertIn(f'no queue "{other}"', self.ends(UNAVAILABLE, "parked", "replay", queue, "--to", other, "--yes").stderr)
        rig("declare", other, "classic")
        self.ok("parked", "replay", queue, "--to", other, "--yes")
        self.assertEqual(sorted(ids(drain(other, 2))), ["m000000", "m000001"])

    @long
    @unittest.skipUnless("BACKHOP_BROKER_CTL" in os.environ, "permissions are set by an administrator")
    def test_a_user_who_may_not_write_moves_nothing(self):
        queue = self.parked(2, "bad")
        before = self.saved(queue)
        broker_ctl("rabbitmqctl", "add_user", "reader", "secret")
        self.addCleanup(broker_ctl, "rabbitmqctl", "delete_user", "reader")
        broker_ctl("rabbitmqctl", "set_permissions", "reader", "^$", "^$", ".*")
        uri = f"amqp://reader:secret@{os.environ['AMQP_URL'].rsplit('@', 1)[-1]}"
        ran = self.ends(NO_PERMISSION, "parked", "replay", queue, "--yes", "--uri", uri)
        self.assertIn("403 ACCESS_REFUSED", ran.stderr)
        self.assertIn("stopped: the broker refused a message", ran.stderr)
        self.assertIn(f'0 of 2 replayed to "{queue}"', ran.stdout)
        self.assertEqual(self.saved(queue), before)

    @long
    def test_ctrl_c_ends_it_in_order_and_the_same_command_goes_on(self):
        queue = self.parked(100, "bad")
        order = ids(self.saved(queue))
        with Terminal("parked", "replay", queue, "--rate", "5", "--yes") as terminal:
            terminal.expect(" remaining, 0 parked again")
            terminal.type("\x03")
            terminal.expect("interrupted: the rest is parked as before")
            self.assertEqual(terminal.wait(), INTERRUPTED)
        self.assertRegex(terminal.seen, r"\d+ of 100 replayed, \d+ a second, \d+(\.\d+)? s remaining, 0 parked again")
        went = ids(drain(queue, 1))
        self.assertEqual(went, order[:len(went)])
        self.assertIn(f"{len(went)} of 100 replayed to", terminal.seen)
        self.assertEqual(ids(self.saved(queue)), order[len(went):])
        self.ok("parked", "replay", queue, "--yes")
        self.assertEqual(ids(drain(queue, 100 - len(went))), order[len(went):])

    @long
    def test_killed_in_the_middle_nothing_is_lost_or_out_of_order_and_few_come_twice(self):
        queue = self.queue()
        rig("park", queue, 1, "bad")
        rig("fill", queue + ".parked", MANY)
        kills = 3
        for _ in range(kills):
            with backhop("parked", "replay", queue, "--where", "id~0", "--rate", SLOW, "--yes", "--stop-after", "0") as process:
                self.await_ready(queue, at_least=1)
                time.sleep(0.05)
                process.kill()
                process.wait(LIMIT_S)
            self.ok("parked", "list", queue)  # which waits until all is back
        self.assert_accounted(queue, kills)

    @long
    def test_the_broker_killed_in_the_middle_loses_nothing(self):
        if not os.environ.get("BACKHOP_BROKER_CTL"):
            self.skipTest("the broker cannot be killed")
        queue = self.queue()
        rig("park", queue, 1, "bad")
        rig("fill", queue + ".parked", MANY)
        broker_ctl("save")
        with backhop("parked", "replay", queue, "--where", "id~0", "--rate", SLOW, "--yes", "--stop-after", "0") as process:
            self.await_ready(queue, at_least=1)
            broker_ctl("kill")
            self.assertEqual(process.wait(LIMIT_S), TRY_AGAIN)
        broker_ctl("start")
        self.await_ready(queue + ".parked", at_least=1)
        self.ok("parked", "list", queue)
        self.assert_accounted(queue, 2)  # acknowledgements that the broker had, and had not worked on, come on top

    def assert_accounted(self, queue, kills):
        left = ids(drain(queue + ".parked", 1))
        went = ids(drain(queue, 1))
        everything = {f"m{i:06}" for i in range(MANY)}
        self.assertEqual(set(left) | set(went), everything)
        numbers = [int(each[1:]) for each in (left[1:] if left[0] == "m000000" and left[1:2] == ["m000000"] else left)]
        self.assertEqual(numbers, sorted(numbers))
        doubled = len(left) + len(went) - (MANY + 1)
        self.assertLessEqual(doubled, 512 * kills)
        self.assertGreater(len(went), 0)


class Files(LiveCase):
    def test_what_was_saved_and_dropped_is_loaded_as_it_was_and_goes_home(self):
        queue = self.parked(5, "507 queue %d is full", "TimeoutError: %d")
        with tempfile.TemporaryDirectory() as directory:
            saved, dropped, again = (str(Path(directory) / name) for name in ("saved", "dropped", "again"))
            self.ok("parked", "save", queue, saved)
            self.assertEqual(os.stat(saved).st_mode & 0o777, 0o600)
            self.assertIn("drop needs a file", self.ends(USAGE, "parked", "drop", queue, "-", "--yes").stderr)
            Path(saved).rename(again)
            Path(f"{saved}.dropped").write_text("2 (lines dropped)")  # of a drop whose file is gone
            self.ok("parked", "save", queue, saved)
            self.assertIn("5 messages", self.ok("parked", "load", saved, "--dry-run").stdout)
            Path(again).unlink()
            self.ends(CANNOT_CREATE, "parked", "save", queue, saved)
            self.ok("parked", "drop", queue, dropped, "--yes", "--where", "error~full")
            self.assertEqual(len(Path(dropped).read_text().splitlines()), 3)
            self.assertIn("2 messages", self.ok("parked", "list", queue).stdout)
            self.ok("parked", "load", dropped)
            self.ok("parked", "save", queue, again)
            self.assertEqual(self.by_id(again), self.by_id(saved))
        self.ok("parked", "replay", queue, "--yes")
        self.assertEqual(len(drain(queue, 5)), 5)

    @long
    def test_a_killed_drop_and_a_load_double_some_hundreds_at_most_and_lose_nothing(self):
        for part in (0, 256, 1024):
            was_killed = any(self.was_drop_killed_and_loaded(part) for _ in range(TRIES))
            self.assertTrue(was_killed, f"each drop ended before {part} of its messages were dropped and it was killed")

    def was_drop_killed_and_loaded(self, part):
        """Kills a drop when so many messages are dropped, and loads its file. Returns False if the drop ended before."""
        queue = self.parked(1, "bad")
        rig("fill", queue + ".parked", MANY)
        self.await_ready(queue + ".parked", MANY + 1)
        with tempfile.TemporaryDirectory() as directory:
            file = Path(directory) / "file"
            mark = Path(directory) / "file.dropped"
            with backhop("parked", "drop", queue, file, "--yes") as process:
                while process.poll() is None:
                    if dropped(mark) >= part:
                        process.kill()
                        break
                process.wait(LIMIT_S)
            was_killed = mark.exists()
            if was_killed:
                self.await_returned(queue + ".parked")
                ran = self.ok("parked", "load", file)
                self.assertIn("did not end", ran.stderr)
            else:
                self.ok("parked", "load", file)
        bodies = [line.split("\t")[4] for line in drain(queue + ".parked", MANY + 1)]
        self.assertEqual(set(bodies), {str(i) for i in range(MANY)})
        self.assertLessEqual(len(bodies) - MANY - 1, 1024)  # a batch, and what the broker had not processed
        return was_killed

    def test_a_loaded_message_reaches_no_other_queue_however_its_line_names_that(self):
        queue, other = self.queue(), self.queue()
        for each in (queue, other):
            rig("declare", each, "classic")
        table = b"".join(bytes([len(name)]) + name + b"S" + len(text).to_bytes(4, "big") + text
                         for name, text in ((b"kept", b"yes"), (b"x-delay", b"1")))
        table += b"\x02CC" + b"A" + (5 + len(other)).to_bytes(4, "big") + b"S" + len(other).to_bytes(4, "big") + other.encode()
        wire = (0x2100).to_bytes(2, "big") + len(table).to_bytes(4, "big") + table + b"\x04200\x30"  # headers, expiration
        lines = [{"queue": queue, "wire": base64.b64encode(wire).decode(), "body": "YQ=="},
                 {"queue": queue, "headers": [[{"base64": "Q0M="}, "A", [["S", other]]], ["BCC", "A", [["S", other]]]],
                  "properties": {"expiration": "1", "user-id": "alice"}, "body": "Yg=="}]
        self.ok("parked", "load", "-", stdin="".join(json.dumps(line) + "\n" for line in lines))
        self.assertEqual(sorted(line.split("\t")[4] for line in drain(queue, 2)), ["a", "b"])
        self.assertEqual(int(rig("depth", other)[0]), 0)
        ran = self.ends(DATA, "parked", "load", "-", stdin=json.dumps({"queue": queue, "wire": "IAA=", "body": ""}) + "\n")
        self.assertIn("-:1: its properties are malformed", ran.stderr)

    def test_o4_5_what_no_copy_can_have_is_saved_in_headers(self):
        queue, other = self.parked(1, "bad"), self.queue()
        drain(queue + ".parked", 1)
        rig("declare", other + ".parked", "classic")
        wanted = [["CC", "A", [["S", "nowhere"]]], ["backhop-cc", "A", [["S", "nowhere"]]], ["backhop-expiration", "S", "60000000"], ["backhop-user-id", "S", "guest"]]
        rig("odd", queue + ".parked")
        with tempfile.TemporaryDirectory() as directory:
            file = Path(directory) / "file"
            self.ok("parked", "drop", queue, file, "--yes")
            line = json.loads(file.read_text())
            self.assertIn(wanted[0], line["headers"])
            wire = {**line, "wire": base64.b64encode(self.wire_of(line)).decode(), "headers": [], "properties": {}}
            for each in (line, wire):
                self.ok("parked", "load", "-", stdin=json.dumps(each) + "\n")
                self.assert_saved(self.saved_lines(queue)[0], wanted)
                drain(queue + ".parked", 1)
        rig("odd", queue + ".parked")
        self.ok("parked", "replay", queue, "--to", other + ".parked", "--yes")
        self.assert_saved(self.saved_lines(other, "--queue-type", "classic")[0], wanted)

    def wire_of(self, line):
        """Returns the properties of a line with message-id, expiration, user-id and CC, as on the wire."""
        table = b"\x02CCA" + (12).to_bytes(4, "big") + b"S" + (7).to_bytes(4, "big") + b"nowhere"
        short = [bytes([len(line["properties"][name])]) + line["properties"][name].encode() for name in ("expiration", "message-id", "user-id")]
        return (0x2190).to_bytes(2, "big") + len(table).to_bytes(4, "big") + table + b"".join(short)

    def saved_lines(self, queue, *options):
        return self.ok("parked", "save", queue, "-", *options).objects

    def assert_saved(self, line, wanted):
        self.assertEqual(sorted(each for each in line["headers"] if each[0] in ("CC", *(name for name, _, _ in wanted))), wanted[1:])
        self.assertFalse({"expiration", "user-id"} & set(line["properties"]))

    def test_a_file_whose_name_is_no_text_is_written_and_loaded(self):
        queue = self.parked(1, "bad")
        with tempfile.TemporaryDirectory() as directory:
            name = os.fsdecode(os.fsencode(directory) + b"/\xe9.ndjson")
            dropped = self.ok("parked", "drop", queue, name, "--yes", "--json").objects[-1]
            self.assertEqual((dropped["messages"], dropped["file"]), (1, f"{directory}/\ufffd.ndjson"))
            self.assertEqual(self.ok("parked", "load", name, "--dry-run", "--json").objects[-1]["to_load"], 1)

    def test_o15_a_file_is_loaded_once(self):
        queue = self.parked(3, "bad")
        with tempfile.TemporaryDirectory() as directory:
            file = Path(directory) / "dropped"
            self.ok("parked", "drop", queue, file, "--yes")
            self.ok("parked", "load", file)
            for again in ((file,), (file, "--to", queue), (file, "--skip", 2)):
                with self.subTest(again):
                    ran = self.ends(USAGE, "parked", "load", *again)
                    self.assertIn(f"lines up to 3 of {file} were loaded before: --skip 3 loads the rest; to load them again, remove {file}.loaded", ran.stderr)
            self.assertIn("3 messages\n", self.ok("parked", "list", queue).stdout)
            self.ok("parked", "load", file, "--skip", 3)
            Path(f"{file}.loaded").unlink()
            self.ok("parked", "load", file)
            self.assertIn("6 messages\n", self.ok("parked", "list", queue).stdout)

    def test_every_type_of_header_comes_back_byte_for_byte(self):
        queue = self.queue()
        rig("declare", queue, "classic")
        line = {"queue": queue, "id": "", "exchange": "", "routing_key": queue,
                "properties": {"content-type": "text/plain", "correlation-id": {"base64": "/w=="}, "priority": 7,
                               "timestamp": 1700000000, "delivery-mode": 2},
                "headers": [["t", "t", True], ["b", "b", -5], ["B", "B", 250], ["s", "s", -300], ["u", "u", 65000], ["I", "I", -70000],
                            ["i", "i", 4000000000], ["l", "l", -(2**62)], ["f", "f", 0.25], ["d", "d", 1e-300], ["D", "D", [2, 314]],
                            ["S", "S", "täxt"], ["x", "x", {"base64": "AP8="}], ["T", "T", 1], ["V", "V", None],
                            ["A", "A", [["l", 1], ["F", [["in", "S", ""]]]]], ["F", "F", [["a", "A", []]]]],
                "body": "AAEC/w=="}
        with tempfile.TemporaryDirectory() as directory:
            out = str(Path(directory) / "out")
            self.ok("parked", "load", "-", "--to", queue, stdin=json.dumps(line) + "\n")
            rig("declare", queue + ".parked", "classic")
            self.ok("parked", "load", "-", "--to", queue + ".parked", stdin=json.dumps(line) + "\n")
            self.ok("parked", "save", queue, out, "--queue-type", "classic")
            got = json.loads(Path(out).read_text())
        self.assertNotIn("wire", got)
        self.assertEqual({header[0]: header for header in got["headers"]}, {header[0]: header for header in line["headers"]})
        self.assertEqual((got["properties"], got["body"]), (line["properties"], line["body"]))

    def test_a_file_that_is_none_says_where_and_how_far_it_came(self):
        queue = self.parked(1, "bad")
        with tempfile.TemporaryDirectory() as directory:
            saved = Path(directory) / "saved"
            self.ok("parked", "save", queue, saved)
            line = saved.read_text()
            for bad in ("{", "[]", '{"queue": "x"}', '{"queue": "x", "headers": [["a", "l", "text"]], "body": ""}'):
                saved.write_text(line + bad + "\n")
                ran = self.ends(DATA, "parked", "load", saved)
                self.assertIn("saved:2: ", ran.stderr)
                self.assertIn("--skip 1", ran.stderr)
        self.ends(NO_INPUT, "parked", "load", "/nowhere/file")

    def by_id(self, file):
        lines = [json.loads(line) for line in Path(file).read_text().splitlines()]
        return {line["id"]: [line["queue"], line["properties"], sorted(h for h in line["headers"] if not h[0].startswith("x-")), line["body"]]
                for line in lines}
