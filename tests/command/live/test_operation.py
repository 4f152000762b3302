import json
import re
import shutil
import signal
import subprocess
import urllib.error

from harness import BUILD, UNAVAILABLE, LiveCase, Terminal, drain, exporter, rig, scrape


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

    def test_messages_that_were_moved_by_hand_and_known_faults_are_noted(self):
        queue = self.parked(1, "bad")
        self.ok("topology", "declare", queue)
        rig("fill", queue + ".parked", 2)
        found = {each["finding"]: each["severity"] for each in self.ok("doctor", queue, "--patience", "0s", "--json").objects}
        self.assertEqual(found.get(f"2 messages in \"{queue}.parked\" were not parked there by Backhop."), "note")
        self.assertEqual(any(each.startswith("The broker is RabbitMQ") for each in found), self.version < (4, 3))
        self.assertEqual(len(drain(queue + ".parked", 3)), 3)

    def test_a_wait_queue_that_leads_nowhere_is_found(self):
        queue, ns = self.queue(), self.queue()
        rig("declare", f"{ns}.wait.200", "quorum")  # without a time to live
        self.ends(UNAVAILABLE, "topology", "declare", queue, "--namespace", ns, "--work-queue", "quorum", "--policy", self.policy())
        self.assertIn("stuck", self.ends(UNAVAILABLE, "doctor", queue, "--namespace", ns, "--policy", self.policy(), "--json").stdout)

    def policy(self):
        path = BUILD / f"command-policy-{self.queue()}.json"
        path.write_text(json.dumps({"steps": "200ms", "jitter": "none", "max-retry-after": "0s"}))
        self.addCleanup(path.unlink)
        return path


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
            terminal.expect("\u2584\u2588")  # 3, then 7
            terminal.expect("1 min 40 s")
            terminal.signal(signal.SIGINT)
            self.assertEqual(terminal.wait(), 0)
        self.assertTrue(terminal.seen.startswith("\x1b[?1049h\x1b[?25l"))
        self.assertTrue(terminal.seen.endswith("\x1b[?25h\x1b[?1049l"))
        screens = terminal.seen.split("\x1b[H")[1:]
        for screen in screens:
            lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen).split("\r\n")
            self.assertLessEqual(len(lines), 12)
            self.assertLessEqual(max(map(len, lines)), 100, screen)
        self.assertIn(queue + ".parked", terminal.seen)
        self.assertIn("unroutable", screens[0])
        self.assertRegex(screens[0], r"\d+ wait queues are empty")

    def test_no_colour_where_none_is_wanted(self):
        queue = self.parked(1, "bad")
        with Terminal("parked", "list", queue, NO_COLOR="1") as plain:
            plain.wait()
        with Terminal("parked", "list", queue) as coloured:
            coloured.wait()
        self.assertNotIn("\x1b", plain.seen)
        self.assertIn("\x1b[1m", coloured.seen)

    def test_the_exporter_serves_depths(self):
        queue = self.parked(3, "bad")
        with exporter(queue) as url:
            text = scrape(url)
            with self.assertRaises(urllib.error.HTTPError) as other:
                scrape(url.replace("/metrics", "/"))
            other.exception.close()
        if shutil.which("promtool"):
            subprocess.run(["promtool", "check", "metrics"], input=text, text=True, check=True, capture_output=True, timeout=60)
        self.assertIn(f'backhop_parked_messages{{queue="{queue}"}} 3\n', text)
        self.assertIn("backhop_up 1\n", text)
        self.assertRegex(text, r'backhop_waiting_messages\{delay="0\.1",queue="backhop\.wait\.100"\} \d+\n')
