import json
import subprocess
import tempfile
from pathlib import Path
from xml.dom import minidom

from harness import BUILD, CANNOT_CREATE, NO_INPUT, TRY_AGAIN, USAGE, Case


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
        for command in ("show", "declare", "verify", "export", "dot"):
            self.help_fits("topology", command)

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


class Simulate(Case):
    def test_the_same_seed_has_the_same_outcome_and_the_seed_is_told(self):
        first = self.ok("simulate", "--seed", 5, "--down", "10s..1m", "--json")
        self.assertEqual(first.stdout, self.ok("simulate", "--seed", 5, "--down", "10s..1m", "--json").stdout)
        with_back_off, at_once = first.objects
        self.assertEqual(with_back_off["done"], with_back_off["messages"])
        self.assertGreater(at_once["parked"], 0)
        self.assertIn("seed 5", self.ok("simulate", "--seed", 5, "--down", "10s..1m").stdout)

    def test_a_drawing_is_xml(self):
        with tempfile.TemporaryDirectory() as directory:
            self.ok("simulate", "--svg", f"{directory}/out.svg")
            self.assertEqual(minidom.parse(f"{directory}/out.svg").documentElement.tagName, "svg")
        self.ends(CANNOT_CREATE, "simulate", "--svg", "/nowhere/out.svg")

    def test_an_outage_that_is_none_is_refused(self):
        self.assertIn("--down", self.ends(USAGE, "simulate", "--down", "6m..1m").stderr)


class Topology(Case):
    def test_what_is_shown_exported_and_drawn_is_one_list(self):
        options = ("orders", "--steps", "10s", "--jitter", "none")
        shown = {each["name"] for each in self.ok("topology", "show", *options, "--all", "--json").objects}
        exported = json.loads(self.ok("topology", "export", *options).stdout)
        names = {each["name"] for kind in ("exchanges", "queues") for each in exported[kind]}
        self.assertEqual({name for name in shown if name != "orders"}, names)
        drawn = self.ok("topology", "dot", *options).stdout
        self.assertIn('"queue backhop.wait.10000" -> "exchange backhop.return"', drawn)
        self.assertIn("orders.parked", self.ok("topology", "show", *options).stdout)


class Completion(Case):
    def test_bash_completes_commands_and_options(self):
        share = Path(__file__).parents[3] / "core/command/share"
        for typed, expected in (
            (["backhop", "pa"], ["parked"]),
            (["backhop", "parked", "re"], ["replay"]),
            (["backhop", "parked", "replay", "--dr"], ["--dry-run"]),
            (["backhop", "schedule", "--max-a"], ["--max-attempts", "--max-age"]),
        ):
            program = f"PATH={BUILD}:$PATH; . {share}/backhop.bash; COMP_WORDS=({' '.join(typed)}); COMP_CWORD={len(typed) - 1}; _backhop; echo ${{COMPREPLY[*]}}"
            got = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True).stdout.split()
            self.assertEqual(got, expected)

    def test_the_manual_names_each_command(self):
        manual = (Path(__file__).parents[3] / "core/command/share/backhop.1.in").read_text()
        for line in self.ok("--help").stdout.splitlines():
            if line.startswith("  "):
                self.assertIn(f".B {line.split()[0]}", manual)
