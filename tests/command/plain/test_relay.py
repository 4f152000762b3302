"""backhop relay without a broker: its policies for the broker, its settings, and its refusals."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from harness import BUILD, DATA, LIMIT_S, NO_INPUT, USAGE, Case


class Relay(Case):
    def setUp(self) -> None:
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.file = Path(place.name) / "relay.yml"

    def config(self, text: str) -> Path:
        self.file.write_text(text)
        return self.file

    def refuses(self, text: str, *parts: str, code: int = USAGE) -> None:
        ran = self.ends(code, "relay", "--config", self.config(text), "--print-policy")
        for part in parts:
            self.assertIn(part, ran.stderr)
        self.assertEqual(ran.stdout, "")

    def test_a_policy_for_each_queue_type_is_shown_as_the_command_that_sets_it(self) -> None:
        ran = self.ok("relay", "-q", "email", "-q", "webhook.*", "--print-policy", "-u", "amqp://localhost/shop")
        lines = [line for line in ran.stdout.splitlines() if not line.startswith("#")]
        self.assertEqual(len(lines), 2)
        for line in lines:
            self.assertTrue(line.startswith("rabbitmqctl set_policy -p 'shop' --apply-to queues"), line)
            self.assertIn(r"'^(email|(?!.*\.parked$)(webhook\..*))$'", line)
        self.assertIn('"dead-letter-strategy":"at-least-once"', lines[0])
        self.assertNotIn("at-least-once", lines[1])

    def test_names_do_not_control_the_terminal_that_shows_a_policy(self) -> None:
        ran = self.ok("relay", "-c", self.config('queues: ["a\\e]0;x\\a"]\n'), "--print-policy", "-u", "amqp://h/%1B[2J")
        self.assertTrue(ran.stdout.replace("\n", "").isprintable(), ran.stdout)
        lines = [line for line in ran.stdout.splitlines() if not line.startswith("#")]
        self.assertEqual(len(lines), 2)
        for line in lines:
            shown = subprocess.check_output(["bash", "-c", 'rabbitmqctl() { printf "%s\\0" "$@"; }; ' + line])
            self.assertIn(b"\0-p\0\x1b[2J\0", shown)
            self.assertIn(b"\0^(a\x1b\\]0;x\a)$\0", shown)

    def test_settings_stand_in_a_file(self) -> None:
        file = self.config(
            "# a comment\nuri: amqp://localhost/shop\nnamespace: retries\nexpired: drop\nprefetch: 50\n"
            "policy: {initial: 10s, max-attempts: 5}\n"
            'queues:\n  email:\n  "webhook.*": {kind: steps, steps: "1s, 1m"}\n'
        )
        ran = self.ok("relay", "--config", file, "--print-policy")
        self.assertIn("-p 'shop'", ran.stdout)
        self.assertIn('"retries.rejected"', ran.stdout)
        self.assertIn(r"email|(?!.*\.parked$)(webhook\..*)", ran.stdout)

    def test_a_file_of_json_is_one_of_yaml(self) -> None:
        ran = self.ok("relay", "-c", self.config('{"queues": ["email", "sms"]}'), "--print-policy")
        self.assertIn("'^(email|sms)$'", ran.stdout)

    def test_x13_a_file_that_is_small_and_costs_much_is_refused_before_it_does(self) -> None:
        text = "a: &a [x, x, x, x, x, x, x, x, x]\n"
        for before, name in zip("abcdefgh", "bcdefghi", strict=True):
            text += f"{name}: &{name} [{', '.join(['*' + before] * 9)}]\n"
        self.refuses(text, "line 2: aliases are not supported", code=DATA)
        self.refuses("[" * 20000, "line 1: this is deeper than any setting", code=DATA)

    def test_o12_a_second_document_is_refused(self) -> None:
        self.refuses("queues:\n  a:\n---\nqueues:\n  b:\n", "line 3: a second document begins here", code=DATA)

    def test_o12_a_wrong_value_is_refused_with_its_line(self) -> None:
        for text, line, said in (
            ("policy:\n  initial: 10 seconds\nqueues: [a]\n", 2, "initial: '10 seconds' is no time span"),
            ("queues: [a]\npolcy:\n", 2, "there is no setting 'polcy'\n"),
            ("queues: [a]\ninitial: 10s\n", 2, "there is no setting 'initial' here: put it under 'policy:'\n"),
            ("queues: [a]\nverbose: true\n", 2, "there is no setting 'verbose'\n"),
            ("queues: [a]\n\nstripes: many\n", 3, "stripes: 'many'"),
            ("queues: [a]\ndrain: 2h\n", 2, "drain: '2h'"),
            ("queues: [a]\nprefetch: none\n", 2, "prefetch: 'none'"),
            ("queues:\n  a:\n    jitter: 20%\n", 3, "a share of 20 % is spread:0.2"),
            ("queues:\n  a:\n    inital: 1s\n", 3, "the policy of a: there is no 'inital'"),
            ("queues:\n  a:\n    max-attempts: [1, 2]\n", 3, "max-attempts: one value is wanted"),
            ("queues:\n  - a\n  - a\n", 3, "twice"),
        ):
            with self.subTest(text):
                self.refuses(text, f"{self.file}, line {line}: ", said)

    def test_o12_steps_may_be_a_list(self) -> None:
        file = self.config("queues:\n  a: {kind: steps, steps: [1s, 5s]}\n")
        self.ok("relay", "-c", file, "--print-policy")

    def test_o11_settings_are_named_as_in_the_file(self) -> None:
        self.refuses("queues: [a]\npolicy: {initial: 1h, max: 1m}\n", "initial is 1 h, above max 1 min: raise max or lower initial")

    def test_o29_a_namespace_is_no_pattern(self) -> None:
        self.refuses('queues: [a]\nnamespace: "my ns.*"\n', "line 2: namespace: 'my ns.*' looks like a pattern")

    def test_what_is_typed_goes_before_the_file(self) -> None:
        file = self.config("namespace: one\nqueues: [email]\n")
        ran = self.ok("relay", "-c", file, "--namespace", "two", "-q", "sms", "--print-policy")
        self.assertIn('"two.rejected"', ran.stdout)
        self.assertIn("'^(sms)$'", ran.stdout)

    def test_a_typed_queue_has_the_policy_of_the_first_pattern_that_matches(self) -> None:
        file = self.config("queues: {'work*': {initial: soon}, 'w*': {max: late}, work2: {max-age: old}, 'a*': }\n")
        for queue, said in (("work1", "'soon'"), ("wide", "'late'"), ("work2", "'old'"), ("work*", "'soon'")):
            self.assertIn(said, self.ends(USAGE, "relay", "-c", file, "-q", queue, "--print-policy").stderr)
        self.ok("relay", "-c", file, "-q", "ab", "-q", "other", "--print-policy")
        self.assertIn("queues: names", self.ends(USAGE, "relay", "-c", self.config("queues: 5\n"), "-q", "a", "--print-policy").stderr)

    def test_a_policy_is_printed_for_the_vhost_of_a_uri_that_can_be_used_alone(self) -> None:
        for uri in ("garbage", "amqp://relay:50%off@rabbit1/prod"):
            ran = self.ends(USAGE, "relay", "-q", "a", "-u", uri, "--print-policy")
            self.assertIn("the URI cannot be used", ran.stderr)
            self.assertEqual(ran.stdout, "")
        self.assertIn(" -p 'prod' ", self.ok("relay", "-q", "a", "-u", "amqp://rabbit1/prod", "--print-policy").stdout)

    def test_wrong_settings_are_refused_by_their_names(self) -> None:
        self.refuses("quues: [email]\n", "quues", str(self.file))
        self.refuses("queues: 5\n", "queues")
        self.refuses("queues: []\n", "--queue")
        self.refuses("expired: requeue\nqueues: [email]\n", "expired", "requeue", "retry, park, drop")
        self.refuses("queues: {email: {inital: 10s}}\n", "the policy of email", "inital")
        self.refuses("queues: {email: {initial: soon}}\n", "initial", "soon")
        self.refuses("queues: {email: {kind: steps}}\n", "steps")
        for own in ("kind: steps, steps: 1s, initial: 1s", "steps: 1s, initial: 1s", "kind: fixed, factor: 3"):
            self.refuses(f"policy: {{initial: 5s, factor: 4}}\nqueues: {{email: {{{own}}}}}\n", "the policy of email", "no use for it")
        self.refuses("policy: {steps: 1s}\nqueues: {email: {initial: 5s}}\n", "the policy of email", "initial", "no use for it")
        self.refuses("queues: [email, email]\n", "email", "twice")
        self.refuses("queues: [backhop.rejected]\n", "the relay itself")
        self.refuses("drain: [1]\nqueues: [email]\n", "drain")
        self.refuses("queues: [email]\nqueue-type: stream\n", "stream")
        self.refuses("queues: [email]\nstripes: 100\n", "stripes", "64")

    def test_a_file_that_cannot_be_read_and_one_that_is_no_yaml_are_told_apart(self) -> None:
        self.refuses("queues: [email\n", "line 2", code=DATA)
        self.refuses("queues:\n  email:\n  email:\n", "line 3", "there already", code=DATA)
        self.refuses("queues: &a [*a]\n", "line 1: aliases", code=DATA)
        self.refuses("", "empty", code=DATA)
        self.ends(NO_INPUT, "relay", "--config", self.file.with_name("nowhere"))

    def test_without_queues_and_with_an_operand_it_says_what_is_wanted(self) -> None:
        self.assertIn("--queue", self.ends(USAGE, "relay").stderr)
        self.assertIn("--queue email", self.ends(USAGE, "relay", "email").stderr)
        self.assertIn("amqp", self.ends(USAGE, "relay", "-q", "email", "-u", "http://localhost").stderr)

    @unittest.skipUnless(shutil.which("systemd-analyze"), "systemd is not installed")
    def test_systemd_understands_the_unit(self) -> None:
        unit = (BUILD / "backhop-relay.service").read_text()
        _, program, *_ = re.split(r"^ExecStart=(\S+)", unit, flags=re.MULTILINE)  # which has to be there, and may not yet
        with tempfile.TemporaryDirectory() as place:
            path = Path(place) / "backhop-relay.service"
            path.write_text(unit.replace(program, str(BUILD / "backhop")))
            verified = subprocess.run(
                ["systemd-analyze", "verify", "--man=no", path], capture_output=True, text=True, timeout=LIMIT_S, check=False
            )
        self.assertNotIn("backhop-relay", verified.stderr)
        self.assertEqual(verified.returncode, 0, verified.stderr)
