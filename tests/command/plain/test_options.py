import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from xml.dom import minidom

from harness import BUILD, CANNOT_CREATE, LIMIT_S, NO_INPUT, TRY_AGAIN, USAGE, Case, Terminal, long, run

SHARE = Path(__file__).parents[3] / "command/share"


def each_help(*command):
    """The help of `backhop COMMAND` and of all commands below it, by the words of the command."""
    text = run(*command, "--help").stdout
    yield command, text
    if "COMMAND [OPTION" in text:
        for name in re.findall(r"^  (\w+) ", text, re.MULTILINE):
            yield from each_help(*command, name)


def options_of(text):
    """Returns the options of a help, described or only named."""
    return set(re.findall("--([a-z-]+)", "\n".join(re.findall("^ +-.*", text, re.MULTILINE))))


class Options(Case):
    def test_every_help_fits_a_screen(self):
        commands = dict(each_help())
        self.assertGreater(len(commands), 16)
        for command, text in commands.items():
            with self.subTest(command):
                self.assertTrue(text.startswith(" ".join(("Usage: backhop", *command)) + " "))
                self.assertLessEqual(max(map(len, text.splitlines())), 80)
                self.assertLessEqual(len(text.splitlines()), 24)

    def test_x1_no_queue_name_controls_the_terminal(self):
        hostile = "w\x1b]0;PWN\x07\x1b[2J\x9b31m\u202e"
        for command in (("topology", "show"), ("topology", "dot"), ("topology", "show", "--json")):
            with self.subTest(command):
                text = self.ok(*command, hostile).stdout
                self.assertIn("PWN", text)
                self.assertEqual([each for each in text if each != "\n" and not each.isprintable()], [])
        self.assertIn(hostile, [each.get("name") for each in self.ok("topology", "show", hostile, "--json").objects])

    def test_the_manual_explains_every_option(self):
        manual = "".join((SHARE / name).read_text() for name in ("backhop.1.in", "backhop-relay.1")).replace("\\-", "-")
        for command, text in each_help():
            with self.subTest(command):
                for option in options_of(text):
                    self.assertIn(f"--{option}", manual)

    def test_x11_no_password_of_the_command_line_stays_in_ps(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts, and never answers
            port = silent.getsockname()[1]
            command = [BUILD / "backhop", "top", "w", "--uri", f"amqp://u:CANARY1@127.0.0.1:{port}", "-m", "http://u:CANARY2@h"]
            with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
                with silent.accept()[0]:  # the program waits for an answer while its arguments are read
                    shown = Path(f"/proc/{process.pid}/cmdline").read_bytes()
                process.kill()
        self.assertIn(b"--uri\0***", shown)
        self.assertNotIn(b"CANARY", shown)

    def test_w10_an_empty_uri_or_a_line_break_in_it_is_refused(self):
        self.assertIn("the URI is empty: give amqp://", self.ends(USAGE, "parked", "list", "q", "--uri", "").stderr)
        ran = self.ends(USAGE, "parked", "list", "q", "--uri", "amqp://127.0.0.1:1/\n")
        self.assertIn("such as a line break at its end: remove it", ran.stderr)

    def test_x11_the_uri_is_read_from_a_file(self):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("amqp://guest:CANARY@127.0.0.1:1/\nmore\n")
            file.flush()
            ran = self.ends(TRY_AGAIN, "parked", "list", "orders", "--uri-file", file.name)
        self.assertIn("no connection to 127.0.0.1:1", ran.stderr)
        self.assertIn("/nowhere cannot be read", self.ends(NO_INPUT, "parked", "list", "q", "--uri-file", "/nowhere").stderr)

    def test_s4_14_a_file_of_a_uri_that_others_can_change_has_a_warning(self):
        with tempfile.TemporaryDirectory() as directory:
            file, link = Path(directory, "uri"), Path(directory, "link")
            file.write_text("amqp://127.0.0.1:1/\n")
            link.symlink_to(file)

            def said(path: Path) -> str:
                return self.ends(TRY_AGAIN, "parked", "list", "orders", "--uri-file", path).stderr

            for mode, is_bad in ((0o600, False), (0o644, False), (0o666, True), (0o777, True)):
                file.chmod(mode)
                for path in (file, link):
                    self.assertEqual(f"--uri-file: all users may write to {path}; run 'chmod o-w' on it" in said(path), is_bad, (mode, path))
            file.chmod(0o600)
            self.assertNotIn("--uri-file", said(link))
            if os.geteuid() == 0:
                os.lchown(link, 65534, 65534)
                self.assertIn(f"--uri-file: {link} is a symbolic link of another user", said(link))

    def test_o14_the_environment_names_the_management_api(self):
        ran = self.ends(TRY_AGAIN, "parked", "list", BACKHOP_MANAGEMENT_URL="http://127.0.0.1:1")
        self.assertIn("no answer from the management API at 127.0.0.1:1", ran.stderr)
        self.assertIn("name the work queues as arguments, for example: orders emails", ran.stderr)

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
            (("parked", "replay", "orders", "--hold", "999ms"), "--hold is 1s or more"),
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

    @long
    def test_o27_a_command_says_that_it_waits(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            port = silent.getsockname()[1]
            ran = self.ends(TRY_AGAIN, "parked", "list", "orders", "--uri", f"amqp://127.0.0.1:{port}/")
        self.assertEqual(ran.stderr.count(f"127.0.0.1:{port} has not answered for 3 s; waiting for it\n"), 1)

    def test_a_file_that_is_not_there_is_named(self):
        self.assertIn("/nowhere", self.ends(NO_INPUT, "schedule", "--policy", "/nowhere").stderr)


class Schedule(Case):
    def test_a_table_has_each_failure_and_its_wait_queues(self):
        lines = self.ok("schedule", "--initial", "10s", "--factor", "3", "--max", "1h", "--max-attempts", "4").stdout
        self.assertEqual([line.split()[0] for line in lines.splitlines()], ["failure", "1", "2", "3", "Attempt"])
        self.assertIn("Attempt 4 is the last", lines)
        self.assertNotIn("also parked", lines)
        aged = self.ok("schedule", "--max-age", "10m").stdout
        self.assertIn("A message is also parked if its next attempt would start more than 10 min after its first failure.", aged)

    def test_a_table_that_is_cut_says_so(self):
        for options, last in (
            (("--max-attempts", "0"), "Only the first 19 failures are shown: the policy has no limit of attempts. --attempts COUNT shows more."),
            (("--max-attempts", "0", "--attempts", "1002"), "Only the first 1000 failures are shown: the policy has no limit of attempts."),
            (("--max-attempts", "1002"), "Only the first 1000 failures are shown: the policy allows 1002 attempts."),
            (("--attempts", "9"), "Only the first 8 failures are shown: the policy allows 10 attempts. --attempts COUNT shows more."),
            (("--max-attempts", "1001"), "Attempt 1001 is the last; a message that fails then is parked."),
            (("--max-attempts", "1"), "Attempt 1 is the last; a message that fails then is parked."),
            ((), "Attempt 10 is the last; a message that fails then is parked."),
        ):
            with self.subTest(options):
                self.assertEqual(self.ok("schedule", *options).stdout.splitlines()[-1], last)

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

    def test_the_order_of_a_files_fields_means_nothing(self):
        for text, said in (
            ('{"kind": "fixed", "steps": "1s"}', "steps are given, but kind is another"),
            ('{"steps": "1s", "kind": "fixed"}', "steps are given, but kind is another"),
            ('{"kind": "steps", "steps": "1s", "initial": "1s"}', "initial is given, and the kind steps has no use for it"),
            ('{"factor": 3, "kind": "linear"}', "factor is given, and the kind linear has no use for it"),
        ):
            with self.subTest(text), tempfile.NamedTemporaryFile("w", suffix=".json") as file:
                file.write(text)
                file.flush()
                self.assertIn(f"{file.name}: {said}", self.ends(USAGE, "schedule", "--policy", file.name).stderr)

    def test_an_option_that_decides_the_kind_replaces_what_the_file_says_of_it(self):
        for text, options, same in (
            ('{"steps": "10s,1m", "max-attempts": 4}', ("--kind", "fixed"), ("--kind", "fixed", "--max-attempts", "4")),
            ('{"kind": "exponential", "factor": 3, "initial": "5s"}', ("--steps", "1s,2s"), ("--steps", "1s,2s")),
            ('{"kind": "steps", "steps": "10s,1m"}', ("--steps", "1s,2s"), ("--steps", "1s,2s")),
            ('{"factor": 3, "initial": "5s"}', ("--kind", "linear"), ("--kind", "linear", "--initial", "5s")),
        ):
            with self.subTest(text), tempfile.NamedTemporaryFile("w", suffix=".json") as file:
                file.write(text)
                file.flush()
                by_both = self.ok("schedule", "--policy", file.name, *options).stdout
                self.assertEqual(by_both, self.ok("schedule", *same).stdout)

    def test_o11_errors_have_the_names_and_units_of_options(self):
        for arguments, said in (
            (("--initial", "1h", "--max", "1m"), "initial is 1 h, above max 1 min: raise max or lower initial"),
            (("--steps", "1s,61001ms", "--max", "61s"), "step 2 is 1 min 1.001 s, above max 1 min 1 s"),
            (("--steps", "1s,0s"), "step is 0 s: give a time span from 0.001 s to 1157 d 9 h 46 min 40 s"),
            (("--max", "20000d"), "max is 20000 d: give a time span from 0.001 s to 1157 d 9 h 46 min 40 s"),
            (("--strategy", "delayed-exchange", "--kind", "fixed", "--initial", "50d", "--max", "50d"),
             "cannot delay by more than 49 d 17 h 2 min 47.295 s: lower max,"),
            (("--strategy", "delayed-exchange", "--max-retry-after", "50d"), "47.295 s: lower max-retry-after,"),
            (("--max", "50ms", "--initial", "10ms"), "max is below the ladder's lowest rung of 0.1 s: raise max,"),
            (("--initial", "0s"), "initial is 0 s: give a time span from 0.001 s to 1157 d 9 h 46 min 40 s"),
            (("--steps", "1m", "--initial", "5s"), "initial is given, and the kind steps has no use for it: leave it out"),
            (("--kind", "fixed", "--factor", "3"), "factor is given, and the kind fixed has no use for it: leave it out"),
            (("--kind", "fixed", "--steps", "1s"), "steps are given, but kind is another: set kind to steps"),
        ):
            with self.subTest(arguments):
                stderr = self.ends(USAGE, "schedule", *arguments).stderr
                self.assertIn(said, stderr)
                self.assertNotRegex(stderr, r"_ms\b|\d ms\b")

    def test_an_error_shows_a_time_span_as_options_take_it(self):
        self.ok("schedule", "--kind", "fixed", "--initial", "1157 d 9 h 46 min 40 s", "--max", "1157 d 9 h 46 min 40 s",
                "--jitter", "none")

    def test_a_strategy_that_cannot_serve_the_policy_names_one_that_can(self):
        self.assertIn("strategy", self.ends(USAGE, "schedule", "--strategy", "reject").stderr)

    def test_a_port_and_an_unreadable_policy_are_named_once(self):
        for listen in ("127.0.0.1:65536", "127.0.0.1:http", "127.0.0.1:-1"):
            self.assertIn(listen, self.ends(USAGE, "exporter", "--listen", listen, "q").stderr)
        stderr = self.ends(NO_INPUT, "schedule", "--policy", "/nonexistent").stderr
        self.assertEqual(stderr, "backhop: /nonexistent cannot be read: No such file or directory\n")

    def test_a_rate_that_is_nearly_no_rate_is_refused(self):
        self.assertIn("0.001 is one message in 1000 s", self.ends(USAGE, "parked", "replay", "q", "--rate", "1e-7").stderr)
        self.assertIn("0.001 or more", self.ends(USAGE, "parked", "replay", "q", "--ramp", "1,1e-17").stderr)


class Simulate(Case):
    def test_the_plot_of_the_site_has_the_figures_of_the_command(self):
        kept = Path(__file__).parents[3] / "docs/pictures/load.ndjson"
        self.assertEqual(self.ok("simulate", "--seed", 5, "--breaker", "--json").stdout, kept.read_text())

    def test_the_same_seed_has_the_same_outcome_and_the_seed_is_told(self):
        first = self.ok("simulate", "--seed", 5, "--down", "10s..1m", "--json")
        self.assertEqual(first.stdout, self.ok("simulate", "--seed", 5, "--down", "10s..1m", "--json").stdout)
        with_back_off, at_once = first.objects
        self.assertEqual(with_back_off["done"], with_back_off["messages"])
        self.assertGreater(at_once["parked"], 0)
        self.assertIn("seed 5", self.ok("simulate", "--seed", 5, "--down", "10s..1m").stdout)

    def test_o20_a_sentence_says_which_is_better_and_the_default_shows_it(self):
        text = self.ok("simulate", "--seed", 5).stdout
        self.assertIn("Back-off is better: it parked 0 of 14400 messages; retried at once, 6000 of 14400 were parked.", text)
        self.assertRegex(text, r"\n +parked +done +calls")
        back_off, at_once = self.ok("simulate", "--seed", 5, "--json").objects
        self.assertLess(back_off["failed_calls"], at_once["failed_calls"])
        self.assertIn("Both are alike", self.ok("simulate", "--seed", 5, "--down", "1s..1s").stdout)

    def test_a_breaker_spares_a_downstream_that_is_down(self):
        back_off, _, breaker = self.ok("simulate", "--breaker", "--seed", 5, "--json").objects
        self.assertEqual(breaker["name"], "breaker")
        self.assertLess(breaker["failed_calls"], 30)  # 10 in a row, and a probe after each pause
        self.assertGreater(back_off["failed_calls"], 40000)
        self.assertEqual((breaker["parked"], breaker["left"]), (0, 0))
        text = self.ok("simulate", "--breaker", "--seed", 5).stdout
        self.assertIn("With a breaker, 15 calls failed, and 0 messages were parked.", text)
        self.assertIn("Calls a second with back-off and a breaker", text)

    def test_a_drawing_is_xml(self):
        with tempfile.TemporaryDirectory() as directory:
            self.ok("simulate", "--breaker", "--svg", f"{directory}/out.svg")
            self.assertIn("with a breaker", Path(directory, "out.svg").read_text())
            self.assertEqual(minidom.parse(f"{directory}/out.svg").documentElement.tagName, "svg")
        self.ends(CANNOT_CREATE, "simulate", "--svg", "/nowhere/out.svg")

    def test_an_outage_that_is_none_is_refused(self):
        self.assertIn("--down", self.ends(USAGE, "simulate", "--down", "6m..1m").stderr)


class Closed(Case):
    def test_o18_a_reader_that_ends_is_no_error(self):
        with subprocess.Popen([BUILD / "backhop", "schedule", "--json", "--max-attempts", "1000"], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE) as process:
            process.stdout.readline()
            process.stdout.close()  # as head -1 does
            self.assertEqual(process.stderr.read(), b"")
            process.wait(LIMIT_S)


class Topology(Case):
    def test_o29_the_help_of_export_names_the_wait_queues_on_demand(self):
        self.assertIn("wait queues that 'declare' leaves to the first message", " ".join(self.ok("topology", "export", "--help").stdout.split()))

    def test_what_is_shown_exported_and_drawn_is_one_list(self):
        options = ("orders", "--steps", "10s", "--jitter", "none")
        shown = {each["name"] for each in self.ok("topology", "show", *options, "--all", "--json").objects}
        exported = json.loads(self.ok("topology", "export", *options).stdout)
        names = {each["name"] for kind in ("exchanges", "queues") for each in exported[kind]}
        self.assertEqual({name for name in shown if name != "orders"}, names)
        drawn = self.ok("topology", "dot", *options).stdout
        self.assertIn('"queue backhop.wait.10000" -> "exchange backhop.return"', drawn)
        self.assertIn("orders.parked", self.ok("topology", "show", *options).stdout)

    def test_s4_12_an_export_has_no_control_characters_of_a_name(self):
        name = "x\x9b31m\u202eevil\x85\u2028\u0416\U0001f600\x7f"
        text = self.ok("topology", "export", "--", name).stdout
        self.assertEqual([each for each in text if not " " <= each <= "~" and each != "\n"], [])
        self.assertIn(name + ".parked", [each["name"] for each in json.loads(text)["queues"]])

    def test_s4_14_a_name_that_rabbitmq_would_change_is_not_declared(self):
        for arguments in (("a\nb",), ("a\rb",), ("a", "--namespace", "n\nm")):
            for command in ("declare", "verify"):
                ran = self.ends(USAGE, "topology", command, *arguments, "--uri", "amqp://127.0.0.1:1")
                self.assertRegex(ran.stderr, r"^backhop: '[an][? ][bm]\S*' has a CR or LF: RabbitMQ removes these characters from names; choose another name\n")

    def test_permissions_match_a_name_whatever_its_characters_are(self):
        needs(self, "bash")
        for name in ("it's $HOME \\ `x` ä\u3042", "w\x1b]0;PWN\x07\n\t'\\1\x7f\x9b31m\u202e"):
            with self.subTest(name):
                options = ("topology", "permissions", name, "--mode", "verify")
                line = self.ok(*options, "--vhost", name, "--user", name).stdout
                self.assertEqual([each for each in line.removesuffix("\n") if not each.isprintable()], [])
                shell = subprocess.run(["bash", "-c", "rabbitmqctl() { printf '%s\\0' \"$@\"; }; " + line], check=True, capture_output=True)
                _, _, vhost, user, *granted, _ = shell.stdout.decode().split("\0")
                self.assertEqual((vhost, user), (name, name))
                self.assertEqual(granted, list(self.ok(*options, "--json").objects[0].values()))
                for pattern, words in zip(granted, ((), (name + ".parked", "amq.default"), (name,)), strict=True):
                    for word in words:
                        self.assertRegex(word, pattern)


class Manual(Case):
    def setUp(self):
        self.pages = [BUILD / "backhop.1", SHARE / "backhop-relay.1"]

    def test_it_has_every_command_and_option(self):
        manual, relay = (page.read_text().replace("\\fR|\\fB", "|") for page in self.pages)
        for command, text in each_help():
            if command:
                place = rf"^\.B {command[0]}\b" if len(command) == 1 else rf"^\.B {command[0]} [\w|]*\b{command[1]}\b"
                self.assertRegex(manual, re.compile(place, re.MULTILINE))
            for option in options_of(text):
                with self.subTest(command=command, option=option):
                    self.assertIn("\\-\\-" + option.replace("-", "\\-"), manual + (relay if command == ("relay",) else ""))

    def test_it_is_clean(self):
        for page in self.pages:
            for checker in (["man", "--warnings", "--local-file"], ["mandoc", "-T", "lint", "-W", "warning"]):
                with self.subTest(page=page.name, checker=checker[0]):
                    needs(self, checker[0])
                    ran = subprocess.run([*checker, page], capture_output=True, text=True, check=True, env={**os.environ, "LC_ALL": "C"})
                    self.assertEqual(ran.stderr + (ran.stdout if checker[0] == "mandoc" else ""), "")


def needs(case, program):
    if not shutil.which(program):
        case.skipTest(f"{program} is missing: tools/install-packages command")


class Completion(Case):
    """Types into a real shell, and checks the resulting command line."""

    bash = ["--norc", "--noprofile", "-i"], ". /usr/share/bash-completion/bash_completion; trap 'echo \"<$BASH_COMMAND>\"' DEBUG\r"
    zsh = ["-f", "-i"], "fpath=(%s $fpath); autoload -U compinit; compinit -D -u; preexec() { print \"<$1>\" }\r" % SHARE

    def test_bash_completes_commands_and_options(self):
        self.completes("bash", *self.bash)

    def test_zsh_completes_commands_and_options(self):
        self.completes("zsh", *self.zsh)

    def completes(self, shell, options, setup):
        needs(self, shell)
        for name in ("backhop.bash", "_backhop"):
            self.assertTrue((SHARE / name).is_file(), f"{SHARE / name} is missing")
        with tempfile.TemporaryDirectory() as home:
            directory = Path(home) / "bash-completion" / "completions"
            directory.mkdir(parents=True)
            (directory / "backhop").symlink_to(SHARE / "backhop.bash")
            path = f"{BUILD}:{os.environ['PATH']}"
            with Terminal(*options, program=shutil.which(shell), HOME=home, PATH=path, XDG_DATA_HOME=home, HISTFILE="") as terminal:
                terminal.type(setup)
                for typed, expected in (
                    ("backhop pa\tli\t--whe\terror~x --he\t", "backhop parked list --where error~x --help"),
                    ("backhop parked re\torders --dr\t--max-r\t3 --he\t", "backhop parked replay orders --dry-run --max-replays 3 --help"),
                    ("backhop sche\t--max-at\t7 --he\t", "backhop schedule --max-attempts 7 --help"),
                    ("backhop topology ver\tord --work\tquorum --he\t", "backhop topology verify ord --work-queue quorum --help"),
                    ("backhop --vers\t", "backhop --version"),
                ):
                    terminal.type(typed + "\r")
                    terminal.expect(f"<{expected}")  # the first that fails ends the test: the shell may be stuck

    def test_every_option_of_every_command_is_completed(self):
        program = '. %s/backhop.bash; while read -ra COMP_WORDS; do COMP_WORDS+=(--); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _backhop; echo ${COMPREPLY[*]}; done'
        helps = dict(each_help())
        typed = "".join(" ".join(("backhop", *command)) + "\n" for command in helps)
        ran = subprocess.run(["bash", "-c", program % SHARE], input=typed, capture_output=True, text=True, check=True, timeout=LIMIT_S,
                             env={**os.environ, "PATH": f"{BUILD}:{os.environ['PATH']}"})
        for (command, text), completed in zip(helps.items(), ran.stdout.splitlines(), strict=True):
            options = {f"--{option}" for option in options_of(text) | {"help"}}
            self.assertEqual(len(completed.split()), len(set(completed.split())), f"O29: {command}")
            self.assertEqual(options | ({"--version"} if not command else set()), set(completed.split()), command)
