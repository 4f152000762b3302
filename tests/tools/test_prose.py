#!/usr/bin/env python3
"""Tests of tools/prose, on a repository of their own."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROSE = Path(__file__).resolve().parents[2] / "tools" / "prose"
LONG = " ".join(["word"] * 26) + "."


class Prose(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        (self.root / "tools").mkdir()
        subprocess.run(["git", "init", "--quiet", self.root], check=True)

    def write(self, name, text):
        (self.root / name).write_text(text)
        subprocess.run(["git", "add", name], cwd=self.root, check=True)

    def prose(self, *arguments):
        return subprocess.run(
            [sys.executable, PROSE, *arguments], cwd=self.root, capture_output=True, text=True
        )

    def offences(self, name, text):
        """Returns the lines of the offences in a file."""
        self.write(name, text)
        lines = self.prose(name).stdout.splitlines()
        return [int(line.split(":")[1]) for line in lines if line.startswith(f"{name}:")]

    def test_plain_sentences_are_accepted(self):
        text = "/* Returns the delay of the next attempt, in ms. If there is none, returns -1. */\n"
        self.assertEqual(self.offences("a.h", text), [])

    def test_a_sentence_has_at_most_25_words(self):
        self.assertEqual(self.offences("a.c", f"// {LONG}\n"), [1])
        self.assertEqual(self.offences("b.c", f"// {LONG[5:]}\n"), [])

    def test_an_offence_names_its_reason_and_what_to_do(self):
        self.write("a.c", "/* Nothing is sent where it is full. */\n")
        output = self.prose("a.c").stdout
        self.assertIn("a.c:1: Nothing is sent where it is full.", output)
        self.assertIn('"where it": a condition begins with if or when', output)

    def test_comments_of_c_are_read_and_strings_are_not(self):
        text = 'int a; // Tells it.\nconst char *u = "amqp://nobody"; /* Fine.\n * Told to us.\n */\n'
        self.assertEqual(self.offences("a.c", text), [1, 3])

    def test_consecutive_line_comments_are_one_paragraph(self):
        text = "// " + LONG[:60].strip() + "\n// " + LONG[60:] + "\n"
        self.assertEqual(self.offences("a.js", text), [1])

    def test_docstrings_and_comments_of_python_are_read(self):
        text = 'def f():\n    """Tells it."""\n    x = "nobody"  # Of it.\n'
        self.assertEqual(self.offences("a.py", text), [2, 3])

    def test_ruby_shell_and_scripts_without_a_suffix_are_read(self):
        self.assertEqual(self.offences("a.rb", 'x = "#{nobody}" # Tells it.\n'), [1])
        self.assertEqual(self.offences("run", "#!/usr/bin/env bash\n# Tells it.\n"), [2])
        self.assertEqual(self.offences("see", "#!/usr/bin/env python3\n# Tells it.\n"), [2])

    def test_markdown_is_read_without_code_and_by_cells(self):
        text = "```\ntells\n```\n\nIt `tells` nothing.\n\n    tells\n\n| Of it | fine |\n"
        self.assertEqual(self.offences("a.md", text), [9])

    def test_a_number_and_a_dot_begin_no_line_of_a_paragraph(self):
        text = "Its attempts begin at\n1. If you move it, they do too.\n\nIt lost 30 of\n  200. Fine.\n"
        self.assertEqual(self.offences("a.md", text), [2, 5])

    def test_lists_and_code_may_have_lines_that_begin_with_a_number(self):
        text = "Steps:\n\n1. Write it.\n2. Run it, and read\n   its output.\n\n# Code\n```\nline\n1. x\n```\n| a |\n"
        self.assertEqual(self.offences("a.md", text), [])

    def test_columns_are_no_sentences(self):
        self.assertEqual(self.offences("a.sh", "#   --ask    who wants to be asked\n"), [])

    def test_more_offences_than_the_baseline_fail(self):
        self.write("a.c", "/* Tells it. */\n")
        self.assertEqual(self.prose("--accept").returncode, 0)
        self.assertEqual(self.prose().returncode, 0)
        self.write("a.c", "/* Tells it. */\n/* Tells more. */\n")
        self.write("b.c", "/* Fine. */\n")
        checked = self.prose()
        self.assertEqual(checked.returncode, 1)
        self.assertIn("a.c: 2 offences, 1 allowed", checked.stdout)
        self.assertNotIn("b.c", checked.stdout)

    def test_a_file_without_a_baseline_has_no_offences(self):
        self.prose("--accept")
        self.write("new.c", "/* Tells it. */\n")
        self.assertEqual(self.prose().returncode, 1)

    def test_fewer_offences_pass_and_hint(self):
        self.write("a.c", "/* Tells it. */\n")
        self.prose("--accept")
        self.write("a.c", "/* Fine. */\n")
        checked = self.prose()
        self.assertEqual(checked.returncode, 0)
        self.assertIn("tools/prose --accept", checked.stdout)

    def test_offences_may_move_but_their_sum_may_not_rise(self):
        self.write("a.c", "/* Tells it. */\n")
        self.prose("--accept")
        self.write("a.c", "/* Fine. */\n")
        self.write("b.c", "/* Tells it. */\n")
        self.assertEqual(self.prose().returncode, 1)
        self.assertEqual(self.prose("--accept").returncode, 0)
        self.assertEqual(self.prose().returncode, 0)
        self.write("a.c", "/* Tells it. */\n")
        refused = self.prose("--accept")
        self.assertEqual(refused.returncode, 1)
        self.assertIn("1 offences more", refused.stdout)


if __name__ == "__main__":
    unittest.main()
