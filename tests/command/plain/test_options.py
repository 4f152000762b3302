import tempfile
from pathlib import Path

from harness import NO_INPUT, TRY_AGAIN, USAGE, Case


class Options(Case):
    def test_help_fits_a_screen_and_lists_each_command(self):
        lines = self.ok("--help").stdout.splitlines()
        self.assertLessEqual(len(lines), 24)
        self.assertLessEqual(max(map(len, lines)), 104)
        commands = [line.split()[0] for line in lines if line.startswith("  ")]
        self.assertIn("schedule", commands)
        for command in commands:
            self.help_fits(command)
        for command in ("list", "show", "replay", "save", "load", "drop"):
            self.help_fits("parked", command)

    def help_fits(self, *command):
        lines = self.ok(*command, "--help").stdout.splitlines()
        self.assertTrue(lines[0].startswith("Usage: backhop " + " ".join(command)))
        self.assertLessEqual(len(lines), 30, lines)
        self.assertLessEqual(max(map(len, lines)), 120, lines)

    def test_the_version_is_that_of_the_library(self):
        version = (Path(__file__).parents[3] / "VERSION").read_text().strip()
        self.assertTrue(self.ok("--version").stdout.startswith(f"backhop {version} "))

    def test_wrong_usage_ends_with_64_and_says_so_on_standard_error(self):
        for arguments, said in (
            ((), "which command?"),
            (("repaly",), "there is no command 'repaly'"),
            (("schedule", "--initail", "1s"), "--initail"),
            (("schedule", "--initial", "soon"), "'soon' is no time span"),
            (("schedule", "--initial", "0s"), "initial"),
            (("schedule", "--attempts", "-1"), "'-1' is no whole number"),
            (("schedule", "--kind", "cubic"), "'cubic' is none of exponential, linear, fixed, steps"),
            (("schedule", "--initial"), "--initial needs a value"),
            (("schedule", "extra"), "'extra'"),
        ):
            with self.subTest(arguments):
                ran = self.ends(USAGE, *arguments)
                self.assertEqual(ran.stdout, "")
                self.assertIn(said, ran.stderr)

    def test_no_broker_is_a_failure_to_try_again_and_no_password_is_told(self):
        ran = self.ends(TRY_AGAIN, "parked", "list", "orders", "--uri", "amqp://guest:secret@127.0.0.1:1/")
        self.assertIn("no connection to 127.0.0.1:1", ran.stderr)
        self.assertNotIn("secret", ran.stderr)
        self.assertNotIn("secret", self.ends(USAGE, "parked", "list", "orders", "--uri", "amqp://guest:secret@/%zz").stderr)

    def test_a_file_that_is_not_there_is_named(self):
        self.assertIn("/nowhere", self.ends(NO_INPUT, "schedule", "--policy", "/nowhere").stderr)


class Schedule(Case):
    def test_a_table_has_each_failure_and_its_wait_queues(self):
        lines = self.ok("schedule", "--initial", "10s", "--factor", "3", "--max", "1h", "--max-attempts", "4").stdout
        self.assertEqual([line.split()[0] for line in lines.splitlines()], ["failure", "1", "2", "3", "The"])
        self.assertIn("The 4th attempt is the last", lines)

    def test_json_says_the_same_in_milliseconds(self):
        first, second = self.ok("schedule", "--jitter", "none", "--max-attempts", "3", "--json").objects
        self.assertEqual(first, {"failure": 1, "lowest_ms": 1000, "mean_ms": 1000, "highest_ms": 1000, "total_ms": 1000,
                                 "rungs": [{"delay_ms": 1000, "share": 1.0}]})
        self.assertEqual(second["total_ms"], 3000)

    def test_steps_and_a_file_name_the_same_things_as_options(self):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            file.write('{"steps": "10s,1m", "jitter": "none"}')
            file.flush()
            by_file = self.ok("schedule", "--policy", file.name).stdout
        self.assertEqual(by_file, self.ok("schedule", "--steps", "10s,1m", "--jitter", "none").stdout)

    def test_a_strategy_that_cannot_serve_the_policy_names_one_that_can(self):
        self.assertIn("strategy", self.ends(USAGE, "schedule", "--strategy", "reject").stderr)
