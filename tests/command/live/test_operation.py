import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import threading
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request

from harness import BUILD, LIMIT_S, TRY_AGAIN, UNAVAILABLE, LiveCase, Terminal, broker_ctl, drain, exporter, long, rig, scrape
from proxy import Proxy
from rogueapi import api

API_ANSWER_S = 60


class Topology(LiveCase):
    def test_what_is_declared_is_verified_and_what_is_missing_is_named(self):
        queue, ns = self.queue(), self.queue()
        options = (queue, "--namespace", ns, "--work-queue", "quorum", "--steps", "200ms", "--jitter", "none", "--max-retry-after", "0s")
        ran = self.ends(UNAVAILABLE, "topology", "verify", *options)
        self.assertIn(f"{ns}.wait.200", ran.stderr)
        self.ok("topology", "declare", *options)
        self.ok("topology", "verify", *options)
        rig("delete", queue + ".parked")
        self.assertIn(queue + ".parked", self.ends(UNAVAILABLE, "topology", "verify", *options).stderr)

    def test_o11_what_makes_missing_parts_is_a_command(self):
        queue, ns = self.queue(), self.queue()
        verified = self.ends(UNAVAILABLE, "topology", "verify", queue, "--namespace", ns).stderr
        self.assertIn("; run 'backhop topology declare', or import the output of 'backhop topology export'", verified)
        checked = self.ends(UNAVAILABLE, "relay", "--check", "--namespace", ns, "-q", queue).stderr
        self.assertIn("; start 'backhop relay'\n", checked)
        for text in (verified, checked):
            self.assertNotIn("mode", text)

    def test_rungs_that_are_made_on_demand_are_not_missed(self):
        queue = self.queue()
        self.ok("topology", "declare", queue, "--work-queue", "quorum")
        self.ok("topology", "verify", queue)

    def test_a_queue_with_other_arguments_is_a_clash_and_stays(self):
        queue = self.queue()
        rig("declare", queue + ".parked", "classic")
        ran = self.ends(UNAVAILABLE, "topology", "declare", queue, "--work-queue", "quorum")
        self.assertIn("x-queue-type", ran.stderr)


class Doctor(LiveCase):
    def test_a_healthy_topology_has_no_problem_and_a_probe_comes_back(self):
        queue = self.queue()
        options = (queue, "--namespace", self.queue(), "--work-queue", "quorum", "--policy", self.policy())
        self.ok("topology", "declare", *options)
        text = self.ok("doctor", *options).stdout
        self.assertIn("A probe came back by wait queue", text)
        self.assertIn("0 problems", text)

    def test_x17_a_pipe_gets_each_finding_at_once(self):
        queue = self.queue()
        options = (queue, "--namespace", self.queue(), "--work-queue", "quorum")
        self.ok("topology", "declare", *options)
        with subprocess.Popen([BUILD / "backhop", "doctor", *options], stdout=subprocess.PIPE, text=True) as doctor:
            self.assertIn("The broker is", doctor.stdout.readline())
            doctor.kill()  # it waits 10 s for a probe
            self.assertEqual(doctor.wait(), -signal.SIGKILL)

    def test_problems_are_named_with_what_to_do(self):
        queue = self.queue()
        rig("declare", queue, "quorum")
        rig("fill", queue, 3)
        ran = self.ends(UNAVAILABLE, "doctor", queue, "--namespace", self.queue(), "--policy", self.policy(), "--json")
        problems = " ".join(each["finding"] for each in ran.objects if each["severity"] == "problem")
        self.assertIn("topology", problems)
        self.assertIn("has 3 messages", problems)
        if self.version >= (4, 0):
            self.assertIn("delivery limit", problems)
        self.assertTrue(all(each["advice"] or each["meaning"] for each in ran.objects))

    @long
    @unittest.skipUnless("BACKHOP_BROKER_CTL" in os.environ, "permissions are set by an administrator")
    def test_o4_4_a_user_who_may_not_publish_to_wait_queues_is_a_problem(self):
        queue, ns = self.queue(), self.queue()
        options = (queue, "--namespace", ns, "--policy", self.policy(), "--patience", "0s")
        self.ok("topology", "declare", *options[:-2], "--work-queue", "quorum")
        broker_ctl("rabbitmqctl", "add_user", "limited", "secret")
        self.addCleanup(broker_ctl, "rabbitmqctl", "delete_user", "limited")
        uri = f"amqp://limited:secret@{os.environ['AMQP_URL'].rsplit('@', 1)[-1]}"
        refused = f'problem This user may not publish to exchange "{ns}.wait.200".'
        note = "note No probe was sent: this user may not declare a queue or bind it."
        for configure, write, code, has_note in (("^$", "amq.default|return", UNAVAILABLE, True), (".*", "amq.default|amq.gen", UNAVAILABLE, False),
                                                 ("^$", "amq.default|wait", 0, True), ("^$", "^$", 0, True), (".*", ".*", 0, False)):
            with self.subTest(configure=configure, write=write):
                broker_ctl("rabbitmqctl", "set_permissions", "limited", configure, write, ".*")
                text = self.ends(code, "doctor", *options, "--uri", uri).stdout
                self.assertEqual((refused in text, note in text), (code != 0, has_note), text)
                if code:
                    self.assertIn(f"What to do: grant the permissions that 'backhop topology permissions {queue}' prints", text)

    def test_p4_7_a_delivery_limit_is_named_as_what_it_is(self):
        usual = ("problem", "RabbitMQ's delivery limit", "AMQP does not show a policy that sets another limit")
        for argument, wanted in (("-1", None), ("1000000000", None), ("1000", ("note", "a delivery limit of its own, 1000", "given back more often")),
                                 ("3", ("problem", "a delivery limit of its own, 3", "given back more often")), (None, usual)):
            if self.version < (4, 0) and argument in ("-1", None):
                continue  # these are the versions without a limit of RabbitMQ's
            with self.subTest(argument):
                queue = self.queue()
                rig("declare", queue, "quorum", *([f"x-delivery-limit={argument}"] if argument else []))
                self.ok("topology", "declare", queue)
                found = self.ends(UNAVAILABLE if wanted and wanted[0] == "problem" else 0, "doctor", queue, "--patience", "0s", "--json").objects
                limits = [(each["severity"], each["finding"], each["meaning"]) for each in found if "delivery limit" in each["finding"]]
                self.assertEqual(len(limits), 1 if wanted else 0, limits)
                for severity, finding, meaning in limits:
                    self.assertEqual((severity, finding), (wanted[0], f'Work queue "{queue}" has {wanted[1]}.'))
                    self.assertIn(wanted[2], meaning)

    def test_p4_7_a_parked_queue_without_a_limit_is_looked_at(self):
        if self.version < (4, 0):
            self.skipTest("-1 is no delivery limit there")
        queue = self.queue()
        rig("declare", queue + ".parked", "quorum", "x-delivery-limit=-1")
        rig("fill", queue + ".parked", 1)
        self.assertIn("1 message\n", self.ok("parked", "list", queue).stdout)

    def test_messages_that_were_moved_by_hand_and_known_faults_are_noted(self):
        queue = self.parked(1, "bad")
        self.ok("topology", "declare", queue)
        rig("fill", queue + ".parked", 2)
        found = {each["finding"]: each["severity"] for each in self.ok("doctor", queue, "--patience", "0s", "--json").objects}
        self.assertEqual(found.get(f"2 messages in \"{queue}.parked\" were not parked there by Backhop."), "note")
        self.assertEqual(any(each.startswith("The broker is RabbitMQ") for each in found), self.version < (4, 3))
        self.assertEqual(len(drain(queue + ".parked", 3)), 3)

    @long
    def test_a_wait_queue_that_leads_nowhere_is_found(self):
        queue, ns = self.queue(), self.queue()
        rig("declare", f"{ns}.wait.200", "quorum")  # without a time to live
        self.ends(UNAVAILABLE, "topology", "declare", queue, "--namespace", ns, "--work-queue", "quorum", "--policy", self.policy())
        self.assertIn("stuck", self.ends(UNAVAILABLE, "doctor", queue, "--namespace", ns, "--policy", self.policy(), "--json").stdout)

    def test_o1_a_consumer_on_a_wait_queue_is_a_problem(self):
        queue, ns = self.queue(), self.queue()
        options = (queue, "--namespace", ns, "--work-queue", "quorum", "--policy", self.policy())
        self.ok("topology", "declare", *options)
        with subprocess.Popen([rig.program, "consume", f"{ns}.wait.200", "9"], stdout=subprocess.PIPE, text=True) as consumer:
            self.addCleanup(consumer.kill)
            self.assertEqual(consumer.stdout.readline(), "\n")
            text = self.ends(UNAVAILABLE, "doctor", *options).stdout
            consumer.kill()
        self.assertIn(f'problem 1 consumer takes messages from wait queue "{ns}.wait.200".', text)

    @long
    def test_o2_a_probe_goes_through_every_wait_queue_up_to_the_patience(self):
        queue, ns, policy = self.queue(), self.queue(), self.policy("200ms,400ms")
        rig("declare", f"{ns}.wait.400", "quorum")  # without a time to live
        self.ends(UNAVAILABLE, "topology", "declare", queue, "--namespace", ns, "--work-queue", "quorum", "--policy", policy)
        text = self.ends(UNAVAILABLE, "doctor", queue, "--namespace", ns, "--policy", policy).stdout
        self.assertIn(f'A probe came back by wait queue "{ns}.wait.200".', text)
        self.assertIn(f'A probe on wait queue "{ns}.wait.400" did not come back', text)

    @long
    def test_x17_what_is_found_is_printed_before_the_probes_come_back(self):
        queue, ns, policy = self.queue(), self.queue(), self.policy()
        rig("declare", f"{ns}.wait.200", "quorum")  # without a time to live: the probe is awaited for 10 s
        self.ends(UNAVAILABLE, "topology", "declare", queue, "--namespace", ns, "--work-queue", "quorum", "--policy", policy)
        command = [BUILD / "backhop", "doctor", queue, "--namespace", ns, "--policy", policy]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as doctor:
            self.assertIn("The broker is RabbitMQ", doctor.stdout.readline())
            self.assertIsNone(doctor.poll())
            self.assertIn("did not come back", doctor.communicate(timeout=LIMIT_S)[0])

    @long
    def test_o10_an_alarm_of_the_broker_is_named_and_no_wait_queue_is_blamed(self):
        queue = self.queue()
        options = (queue, "--namespace", self.queue(), "--work-queue", "quorum", "--policy", self.policy())
        self.ok("topology", "declare", *options)
        broker_ctl("set-alarm")
        self.addCleanup(broker_ctl, "clear-alarm")
        ran = self.ends(UNAVAILABLE, "doctor", *options)
        self.assertIn("problem The broker has a memory or disk alarm", ran.stdout)
        self.assertNotIn("did not come back", ran.stdout)
        self.assertEqual(ran.stderr, "")

    def test_missing_wait_queues_are_a_note_without_the_policy_and_a_problem_with_it(self):
        queue, ns, policy = self.queue(), self.queue(), self.policy("7s")
        options = (queue, "--namespace", ns, "--work-queue", "quorum", "--patience", "0s")
        self.ok("topology", "declare", *options[:-2], "--policy", policy)
        text = self.ok("doctor", *options).stdout
        self.assertIn(f'note "{queue}" lacks wait queues of the default policy.', text)
        self.assertIn("What to do: pass the consumer's policy: --policy FILE\n", text)
        self.assertIn("0 problems", text)
        text = self.ok("doctor", *options, "--policy", policy).stdout
        self.assertIn(f'ok The topology of "{queue}" is there.', text)
        other = self.ends(UNAVAILABLE, "doctor", *options, "--policy", self.policy("9s")).stdout
        self.assertIn(f"{ns}.wait.9000", other)

    def test_parts_that_every_policy_needs_are_a_problem_without_the_policy(self):
        queue, ns, policy = self.queue(), self.queue(), self.policy("7s")
        options = (queue, "--namespace", ns, "--work-queue", "quorum")
        self.ok("topology", "declare", *options, "--policy", policy)
        rig("delete", queue + ".parked")
        text = self.ends(UNAVAILABLE, "doctor", *options, "--patience", "0s").stdout
        self.assertIn(f'missing: queue "{queue}.parked"; run', text)
        self.assertNotIn(".wait.", text)

    def policy(self, steps="200ms"):
        path = BUILD / f"command-policy-{self.queue()}.json"
        path.write_text(json.dumps({"steps": steps, "jitter": "none", "max-retry-after": "0s"}))
        self.addCleanup(path.unlink)
        return path

    @long
    def test_a_command_to_copy_is_of_the_queue_whatever_its_name_has(self):
        for name in ("two words", "it's", "-q", "a;rm $HOME", "a`b`\"c\\d", "tilde~#!"):
            queue = name + self.queue() if name != "-q" else "-q." + self.queue()
            rig("declare", queue, "quorum", "x-delivery-limit=1000000000")
            found = self.ends(UNAVAILABLE, "doctor", "--json", "--patience", "0s", "--", queue).objects
            given = next(each["command"] for each in found if each["command"] and "declare" in each["command"])
            self.assertEqual(shlex.split(given)[-1], queue)
            command = given.replace("backhop", str(BUILD / "backhop"), 1)
            subprocess.run(["sh", "-ec", command], check=True, stdout=subprocess.DEVNULL)
            self.ok("doctor", "--patience", "0s", "--", queue)
        results = self.ends(UNAVAILABLE, "doctor", "--json", "--patience", "0s", "--", "a\nb" + self.queue()).objects
        self.assertIn("backhop topology declare QUEUE", [each["command"] for each in results])


class Watching(LiveCase):
    def test_a_look_as_json_has_each_queue(self):
        queue = self.parked(3, "bad")
        found = {each["queue"]: each for each in self.ok("top", queue, "--once", "--json").objects}
        self.assertEqual((found[queue]["kind"], found[queue]["ready"], found[queue]["consumers"]), ("work", 0, 0))
        self.assertEqual((found[queue + ".parked"]["kind"], found[queue + ".parked"]["ready"]), ("parked", 3))
        self.assertIn("parked", self.ok("top", queue, "--once").stdout)

    def test_the_screen_shows_queues_and_is_left_as_it_was(self):
        queue = self.parked(3, "bad")
        self.ok("topology", "declare", queue)  # a screen of wait queues, which are empty, and not shown
        with Terminal("top", queue, "--interval", "100ms", columns=100, lines=12) as terminal:
            terminal.expect("Ctrl-C ends it")
            rig("fill", queue + ".parked", 4)
            rig("fill", "backhop.wait.100000", 2)
            terminal.expect("\u2584")  # 3 beside 7
            terminal.expect("1 min 40 s")
            terminal.signal(signal.SIGINT)
            self.assertEqual(terminal.wait(), 0)
        self.assertTrue(terminal.seen.startswith("\x1b[?1049h\x1b[?25l"))
        self.assertTrue(terminal.seen.endswith("\x1b[?25h\x1b[?1049l"))
        self.assertRegex(terminal.seen, "\u2584[\u2584-\u2588]*\u2588")  # a look can come while the queue fills
        screens = terminal.seen.split("\x1b[H")[1:]
        for screen in screens:
            lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen).split("\r\n")
            self.assertLessEqual(len(lines), 12)
            self.assertLessEqual(max(map(len, lines)), 100, screen)
        self.assertIn(queue + ".parked", terminal.seen)
        self.assertIn("unroutable", screens[0])
        self.assertRegex(screens[0], r"\d+ wait queues are empty")

    def test_o17_q_ends_the_screen_and_a_narrow_one_has_no_empty_lines(self):
        queue = self.parked(3, "bad")
        with Terminal("top", queue, "--interval", "100ms", columns=40, lines=12) as terminal:
            terminal.expect("q or Ctrl-C ends it")
            terminal.type("q")
            self.assertEqual(terminal.wait(), 0)
        for screen in terminal.seen.split("\x1b[H")[1:]:
            lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen).split("\r\n")
            self.assertLessEqual(max(len(line.rstrip("\r")) for line in lines), 40, lines)
        self.assertRegex(terminal.seen, r"\nparked +command\S+ \S* +3\b")

    def test_o17_one_look_has_no_lines_of_empty_wait_queues(self):
        queue, ns = self.queue(), self.queue()
        self.ok("topology", "declare", queue, "--namespace", ns, "--work-queue", "quorum")
        text = self.ok("top", queue, "--namespace", ns, "--once").stdout
        self.assertNotIn("waiting", text)
        self.assertRegex(text, r"\n\d+ wait queues are empty\n$")

    def test_no_colour_where_none_is_wanted(self):
        queue = self.parked(1, "bad")
        with Terminal("parked", "list", queue, NO_COLOR="1") as plain:
            plain.wait()
        with Terminal("parked", "list", queue) as coloured:
            coloured.wait()
        self.assertNotIn("\x1b", plain.seen)
        self.assertIn("\x1b[1m", coloured.seen)

    def test_x4_o24_connections_that_send_nothing_delay_no_scrape(self):
        with exporter(self.parked(1, "bad")) as url, contextlib.ExitStack() as idle:
            address = urllib.parse.urlsplit(url)
            for _ in range(200):  # of 2 s each, if it served them one after the other
                idle.enter_context(socket.create_connection((address.hostname, address.port), timeout=LIMIT_S))
            self.assertIn("backhop_up 1\n", scrape(url))

    def test_a_name_that_was_not_allowed_gets_no_metrics(self):
        queue = self.parked(1, "bad")
        with exporter(queue, "--host", "metrics.example") as url:
            for host, status in (("rebound.example", 421), ("", 421), ("metrics.example:9419", 200), ("10.0.0.7:80", 200), ("localhost", 200)):
                request = urllib.request.Request(url, headers={"Host": host})
                try:
                    with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
                        self.assertEqual(answer.status, status, host)
                except urllib.error.HTTPError as refused:
                    self.assertEqual(refused.code, status, host)
                    self.assertNotIn(queue.encode(), refused.read())
                    refused.close()

    @long
    def test_o27_an_exporter_whose_broker_is_silent_is_not_up_and_has_no_numbers(self):
        queue = self.parked(3, "bad")
        parked = f'backhop_parked_messages{{queue="{queue}"}} 3\n'
        with contextlib.closing(Proxy(os.environ["AMQP_URL"])) as proxy, exporter(queue, "--uri", proxy.url) as url:
            self.assertIn(parked, scrape(url))
            proxy.hold()
            for _ in range(2):
                text = scrape(url)
                self.assertIn("backhop_up 0\n", text)
                self.assertNotIn("backhop_parked_messages", text)
            proxy.release()
            self.assertIn(parked, scrape(url))

    @long
    def test_s4_5_an_exporter_whose_management_api_is_silent_serves_the_queues_of_its_last_answer(self):
        queues, may_answer = [self.parked(1, "bad")], threading.Event()

        def answer(_: int) -> dict:
            may_answer.wait()
            return {"page_count": 1, "items": [{"name": each + ".parked"} for each in queues]}

        def metric(number: int) -> str:
            return f'backhop_parked_messages{{queue="{queues[number]}"}} {number + 1}\n'

        may_answer.set()
        with api(answer) as (url, _), contextlib.ExitStack() as end, exporter("--management", url) as metrics:
            end.callback(may_answer.set)
            self.assertIn(metric(0), scrape(metrics))
            may_answer.clear()
            queues.append(self.parked(2, "bad"))
            for _ in range(3):  # without an answer to the request of the first one
                text = scrape(metrics, API_ANSWER_S / 2)
                self.assertIn("backhop_up 1\n", text)
                self.assertIn(metric(0), text)
                self.assertNotIn(queues[1], text)
            may_answer.set()
            until = time.monotonic() + LIMIT_S
            while metric(1) not in (text := scrape(metrics)):
                self.assertLess(time.monotonic(), until, text)
                time.sleep(0.02)

    @long
    def test_o27_a_screen_marks_what_is_stale(self):
        queue = self.parked(3, "bad")
        with contextlib.closing(Proxy(os.environ["AMQP_URL"])) as proxy, \
                Terminal("top", queue, "--interval", "5s", "--uri", proxy.url) as terminal:
            terminal.expect("Ctrl-C ends it")
            self.assertNotIn("STALE", terminal.seen)
            proxy.hold()
            terminal.expect("STALE")
            proxy.release()
            rig("fill", queue + ".parked", 4)
            terminal.expect("\u2584\u2588")  # 3, then 7
            self.assertNotIn("STALE", terminal.seen.split("\x1b[H")[-1])
            terminal.type("q")
            self.assertEqual(terminal.wait(), 0)

    @long
    def test_a_screen_shows_depths_while_the_management_api_is_silent(self):
        queue, end = self.parked(3, "bad"), threading.Event()

        def never(_: int) -> None:
            end.wait()

        with api(never) as (url, _), contextlib.ExitStack() as ends:
            ends.callback(end.set)
            begun = time.monotonic()
            with Terminal("top", queue, "--management", url) as terminal:
                terminal.expect("Ctrl-C ends it")
                rig("fill", queue + ".parked", 4)
                terminal.expect("\u2584\u2588")  # 3, then 7
                terminal.type("q")
                self.assertEqual(terminal.wait(), 0)
            once = self.ok("top", queue, "--once", "--management", url)
            self.assertLess(time.monotonic() - begun, API_ANSWER_S / 2)
        self.assertRegex(once.stdout, rf"parked +{queue}\.parked +7")
        self.assertIn("the management API has not answered; wait queues of other policies are missing", once.stderr)

    @long
    def test_o27_one_look_at_a_silent_broker_fails(self):
        queue = self.parked(1, "bad")
        with contextlib.closing(Proxy(os.environ["AMQP_URL"])) as proxy:
            with Terminal("top", queue, "--json", "--interval", "100ms", "--uri", proxy.url) as terminal:
                terminal.expect('"parked"')
                proxy.hold()
                terminal.expect("has not answered for 3 s; waiting for it")
                terminal.expect("this node may have lost its cluster")
                self.assertEqual(terminal.wait(), TRY_AGAIN)

    def test_o29_the_exporter_answers_head(self):
        with exporter(self.parked(1, "bad")) as url, \
                urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=LIMIT_S) as answer:
            self.assertEqual((answer.status, answer.read()), (200, b""))
            self.assertGreater(int(answer.headers["Content-Length"]), 0)

    def test_the_exporter_serves_depths(self):
        queue = self.parked(3, "bad")
        with exporter(queue) as url:
            text = scrape(url)
            with self.assertRaises(urllib.error.HTTPError) as other:
                scrape(url.replace("/metrics", "/"))
            other.exception.close()
        self.assertIn(f'backhop_consumers{{queue="{queue}"}} 0\n', text)
        if shutil.which("promtool"):
            subprocess.run(["promtool", "check", "metrics"], input=text, text=True, check=True, capture_output=True, timeout=LIMIT_S)
        self.assertIn(f'backhop_parked_messages{{queue="{queue}"}} 3\n', text)
        self.assertIn("backhop_up 1\n", text)
        self.assertRegex(text, r'backhop_overdue_messages\{delay="0\.1",queue="backhop\.wait\.100"\} 0\n')
        self.assertRegex(text, r'backhop_waiting_messages\{delay="0\.1",queue="backhop\.wait\.100"\} \d+\n')
