#!/usr/bin/env python3
"""Tests of tests/tools/repeat, slowest and plant, on a Makefile, durations and a C program of their own."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

TOOLS = Path(__file__).resolve().parent
# Passes, fails, passes, fails, ... and prints what pytest and the ledger's test print.
MAKEFILE = """
flaky:
\t@echo run >>runs
\t@[ $$(($$(wc -l <runs) % 2)) = 1 ] || { echo "FAILED tests/test_x.py::test_every_second - AssertionError"; echo "seed 314"; exit 1; }
good:
\t@true
endless:
\t@echo $$$$ >pid; exec sleep 600
allowed:
\t@python3 -c 'import os; print(len(os.sched_getaffinity(0)), os.nice(0))' >allowed
"""
CHECK_XML = """<?xml version="1.0"?>
<testsuites xmlns="http://check.sourceforge.net/ns"><suite><title>relay</title>
<test result="success"><path>.</path><fn>a.c:1</fn><id>one</id><iteration>0</iteration><duration>30.5</duration>
<description>plain</description><message>Passed</message></test>
<test result="failure"><path>.</path><fn>a.c:1</fn><id>two</id><iteration>0</iteration><duration>-1.000000</duration>
<description>plain</description><message>Timeout</message></test></suite></testsuites>
"""


class InFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        (self.root / "Makefile").write_text(MAKEFILE)

    def run_tool(self, name, *arguments):
        environment = {key: value for key, value in os.environ.items() if key not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
        return subprocess.run(
            [sys.executable, TOOLS / name, *arguments], cwd=self.root, env=environment, capture_output=True, text=True, check=False
        )


class Repeat(InFolder):
    def test_the_table_counts_failures_and_names_test_and_seed(self):
        done = self.run_tool("repeat", "4", "flaky", "good")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        rows = {line.split()[0]: line.split()[1:3] for line in done.stdout.splitlines() if line.endswith(" s") and "run" not in line}
        self.assertEqual(rows, {"flaky": ["4", "2"], "good": ["4", "0"]})
        for number in (2, 4):
            self.assertIn(f"flaky, run {number}: tests/test_x.py::test_every_second, seed 314", done.stdout)

    def test_the_output_of_failed_runs_alone_is_kept(self):
        self.run_tool("repeat", "4", "flaky")
        kept = sorted(path.name for path in (self.root / "build/repeat").iterdir())
        self.assertEqual(kept, ["flaky-2.log", "flaky-4.log"])
        self.assertIn("AssertionError", (self.root / "build/repeat/flaky-2.log").read_text())

    def test_runs_that_all_pass_return_zero(self):
        self.assertEqual(self.run_tool("repeat", "2", "good").returncode, 0)

    def test_one_core_and_nice_hold_for_the_part(self):
        self.assertEqual(self.run_tool("repeat", "1", "allowed", "--one-core", "--nice", "--beside", "1").returncode, 0)
        self.assertEqual((self.root / "allowed").read_text().split(), ["1", "19"])

    def test_nothing_is_left_if_repeat_is_killed(self):
        for number in (signal.SIGTERM, signal.SIGKILL):
            with self.subTest(number):
                (self.root / "pid").unlink(missing_ok=True)
                process = subprocess.Popen(
                    [sys.executable, TOOLS / "repeat", "1", "endless", "--beside", "2"], cwd=self.root, stdout=subprocess.DEVNULL
                )
                self.await_(lambda: (self.root / "pid").exists() and (self.root / "pid").read_text())
                loops = [pid for pid in children(process.pid) if "while True" in command_of(pid)]
                self.assertEqual(len(loops), 2)
                process.send_signal(number)
                process.wait()
                self.await_(lambda pids=tuple(loops): not any("while True" in command_of(pid) for pid in pids))
                if number == signal.SIGTERM:
                    shell = (self.root / "pid").read_text().strip()
                    self.await_(lambda pid=shell: "sleep" not in command_of(pid))
                else:
                    os.kill(int((self.root / "pid").read_text()), signal.SIGTERM)

    def await_(self, condition):
        end = time.monotonic() + 60
        while not condition():
            self.assertLess(time.monotonic(), end, "it did not become true within 60 s")
            time.sleep(0.02)


def children(pid):
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def command_of(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


class Slowest(InFolder):
    def write(self, name, *rows):
        (self.root / name).write_text("".join(f"{json.dumps(row)}\n" for row in rows))

    def lines(self, *arguments):
        done = self.run_tool("slowest", ".", *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.splitlines()

    def test_the_slowest_come_first_from_all_files(self):
        self.write("a.jsonl", *({"suite": "pika", "test": f"test {i}", "seconds": i} for i in range(12)))
        self.write("b.jsonl", {"suite": "bunny", "test": "last", "seconds": 15})
        lines = self.lines()
        self.assertEqual(lines[0], "the slowest of 13 tests, which took 81 s in all")
        self.assertEqual(lines[1:3], ["   15.0 s  bunny: last", "   11.0 s  pika: test 11"])
        self.assertEqual(len(lines), 11)
        self.assertEqual(len(self.lines("-n", "2")), 3)

    def test_a_test_above_the_limit_is_listed_again_unless_it_is_long(self):
        self.write("a.jsonl", {"suite": "a", "test": "hangs", "seconds": 21}, {"suite": "a", "test": "waits", "seconds": 60, "long": True})
        lines = self.lines()
        self.assertEqual(lines[lines.index("above 20 s without the tag `long`") + 1 :], ["   21.0 s  a: hangs"])

    def test_the_log_of_check_is_read(self):
        (self.root / "core.xml").write_text(CHECK_XML)
        self.assertIn("   30.5 s  relay: one:0", self.lines())

    def test_a_log_that_breaks_off_ends_nothing(self):
        self.write("a.jsonl", {"suite": "a", "test": "b", "seconds": 1})
        (self.root / "core.xml").write_text(CHECK_XML[:200])
        (self.root / "b.jsonl").write_text('{"suite": "a", "te')
        self.assertIn("    1.0 s  a: b", self.lines())


# A program that succeeds if 2 and 2 are 4, and otherwise says after how many tries they are not.
ADDING = "\n".join(
    [
        "#include <stdio.h>",
        "int main(void)",
        "{",
        "    int sum = 2 + 2;",
        "    if (sum != 4)",
        '        printf("try 7: the sum is %d\\n", sum);',
        "    return sum != 4;",
        "}",
        "",
    ]
)
PATCH = """{defect}

--- a/adding.c
+++ b/adding.c
@@ -1,7 +1,7 @@
 #include <stdio.h>
 int main(void)
 {{
-    int sum = 2 + {before};
+    int sum = 2 + {after};
     if (sum != 4)
         printf("try 7: the sum is %d\\n", sum);
     return sum != 4;
"""


class Plant(InFolder):
    def setUp(self):
        super().setUp()
        (self.root / "tests/tools").mkdir(parents=True)
        shutil.copy(TOOLS / "plant", self.root / "tests/tools/plant")
        (self.root / "adding.c").write_text(ADDING)
        (self.root / ".gitignore").write_text("/build/\n")
        (self.root / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.25)\nproject(adding C)\nadd_executable(adding adding.c)\n"
        )
        preset = {"name": "dev", "generator": "Ninja", "binaryDir": "${sourceDir}/build/dev"}
        (self.root / "CMakePresets.json").write_text(json.dumps({"version": 6, "configurePresets": [preset]}))
        subprocess.run(["git", "init", "--quiet"], cwd=self.root, check=True)

    def plant(self, **patches):
        folder = self.root / "plants"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for name, values in patches.items():
            (folder / f"{name}.patch").write_text(PATCH.format(defect=f"The defect {name}.", **values))
        words = ["plants", "adding", "--counted", r"try (\d+)", "--found", r"try \d+: (.*)", "--", "build/dev/adding"]
        done = subprocess.run(
            [sys.executable, "tests/tools/plant", *words], cwd=self.root, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout + done.stderr

    def test_each_defect_alone_is_planted_and_found(self):
        status, output = self.plant(one={"before": 2, "after": 1}, two={"before": 2, "after": 9})
        self.assertEqual(status, 0, output)
        rows = [line.split() for line in output.splitlines() if " the sum is " in line and ":" not in line]
        self.assertEqual([(row[0], row[1], row[-1]) for row in rows], [("one", "7", "3"), ("two", "7", "11")], output)
        self.assertEqual((self.root / "adding.c").read_text(), ADDING)

    def test_a_defect_that_is_not_found_fails(self):
        status, output = self.plant(none={"before": 2, "after": "1 + 1"})
        self.assertEqual(status, 1, output)
        self.assertIn("NOT FOUND", output)

    def test_a_patch_that_no_longer_applies_fails(self):
        status, output = self.plant(old={"before": 5, "after": 1})
        self.assertEqual(status, 1, output)
        self.assertIn("NO LONGER APPLIES", output)

    def test_a_test_that_fails_without_a_defect_finds_nothing(self):
        (self.root / "adding.c").write_text(ADDING.replace("sum != 4;", "1;"))
        status, output = self.plant(one={"before": 2, "after": 1})
        self.assertEqual(status, 1, output)
        self.assertIn("without a defect", output)


if __name__ == "__main__":
    unittest.main()
