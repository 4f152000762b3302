"""The playground of the site in a browser. It must show the rows that the command prints."""

import json
import os
import re
import subprocess
import unittest
from pathlib import Path

from browser import AXE, chromium

BACKHOP = Path(os.environ["BACKHOP_BUILD"], "backhop")
PAGE = Path(os.environ["BACKHOP_SITE"], "playground.html").resolve().as_uri()
POLICY = {"initial": "10s", "factor": "3", "max": "1h", "max-attempts": "5"}


def command(name: str, **options: str) -> subprocess.CompletedProcess:
    words = [word for option, value in options.items() for word in (f"--{option}", value) if word]
    return subprocess.run([BACKHOP, name, *words], capture_output=True, text=True, timeout=120)


class Playground(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.chromium = cls.enterClassContext(chromium())

    def page(self, script=None, **options):
        context = self.chromium.new_context(**options)
        self.addCleanup(context.close)
        page = context.new_page()
        page.set_default_timeout(60000)
        self.loads, self.errors = [], []
        page.on("request", lambda request: self.loads.append(request.url))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda line: self.errors.append(line.text) if line.type == "error" else None)
        if script:
            page.add_init_script(script)
        page.goto(PAGE)
        return page

    def open(self, **options):
        page = self.page(**options)
        page.wait_for_selector("#policy-playground svg.plot")
        return page

    def type(self, page, **fields):
        for name, value in fields.items():
            page.get_by_label(name, exact=True).fill(value)

    def rows(self, page, caption):
        table = page.get_by_role("region", name=caption)
        return [[cell.inner_text() for cell in row.locator("td").all()] for row in table.locator("tbody tr").all()]

    def problem(self, page):
        return page.locator("#policy-playground [role=alert]:visible")

    def test_a_typed_policy_has_the_delays_of_the_command(self):
        page = self.open()
        self.type(page, **POLICY)
        page.get_by_text("A message that fails 5 times is parked, about 6 min 40 s after its first failure.").wait_for()
        lines = command("schedule", **POLICY).stdout.splitlines()[1:5]
        expected = [re.split(r"  +", line.strip()) for line in lines]
        shown = self.rows(page, "Delays")
        self.assertEqual([[failure, mean, total] for failure, _, mean, total, _ in shown],
                         [[failure, mean, total] for failure, _, mean, _, total, *_ in expected])
        self.assertEqual([delay for _, delay, *_ in shown], [f"{lowest} to {highest}" for _, lowest, _, highest, *_ in expected])
        rungs = json.loads(command("schedule", **POLICY, json="").stdout.splitlines()[0])["rungs"]
        self.assertEqual(re.findall(r"(\d+)\s%", shown[0][4]), [f"{each['share'] * 100:.0f}" for each in rungs])
        self.assertEqual(page.locator("svg.plot .rung").count(), sum(row[4].count("%") for row in shown))
        self.assertEqual(self.errors, [])

    def test_the_load_is_that_of_the_command(self):
        page = self.open()
        load = {"rate": "50", "capacity": "200", "down": "30s..3m"}
        self.type(page, **POLICY, **load)
        page.get_by_role("cell", name="of 18,000").first.wait_for()
        told = command("simulate", **POLICY, **load, seed="1", json="", breaker="").stdout
        runs = {run["name"]: run for run in map(json.loads, told.splitlines())}
        self.assertEqual(self.rows(page, "Calls and parked messages"), [
            [title, f"{run['calls']:,}", f"{run['failed_calls']:,}", f"{run['most_calls_per_s']:,.0f}",
             f"{run['parked']:,} of {run['messages']:,}"]
            for title, run in (("With this policy", runs["back-off"]), ("With this policy and a circuit breaker", runs["breaker"]),
                               ("Retried at once", runs["at-once"]))
        ])

    def test_a_wrong_policy_is_refused_in_the_words_of_the_command(self):
        page = self.open()
        for fields, field in (({"initial": "soon"}, "initial"), ({"initial": "0s"}, "initial"), ({"initial": "2h"}, None),
                              ({"initial": "", "factor": "0.5"}, "factor"), ({"factor": "", "max-attempts": "-1"}, "max-attempts")):
            with self.subTest(fields):
                self.type(page, **fields)
                expected = command("schedule", **{name: value for name, value in fields.items() if value}).stderr
                self.problem(page).filter(has_text=expected.splitlines()[0].removeprefix("backhop: ")).wait_for()
                marked = page.locator("#policy-playground [aria-invalid]").all()
                self.assertEqual([each.get_attribute("name") for each in marked], [field] if field else [])
        self.type(page, **{"max-attempts": ""})
        self.problem(page).wait_for(state="detached")

    def test_p4_13_texts_name_the_limit_and_the_reason(self):
        page = self.open()
        self.type(page, **{"max-attempts": "1"})
        page.get_by_text("The policy has no retry, so it needs no wait queue.").wait_for()
        self.type(page, **{"max-attempts": "", "rate": "1000000000"})
        self.problem(page).filter(has_text="give a number above 0 and below 1000000000").wait_for()
        for span in ("999999999999d", "0"):
            self.type(page, rate="", initial=span)
            self.problem(page).filter(has_text=f"'{span}' is no time span: write numbers with units, as 250ms, 1.5s, 5m, 2h or 3d, and 104249991d at most").wait_for()

    def test_p4_13_the_address_has_the_fields(self):
        page = self.open()
        self.assertNotIn("#", page.url)
        self.type(page, **POLICY)
        page.get_by_label("series").select_option("R5")
        page.get_by_text("about 6 min 40 s after its first failure.").wait_for()
        page.wait_for_url("**#policy?*series=R5*")
        other = page.context.new_page()
        other.goto(page.url)
        other.get_by_text("about 6 min 40 s after its first failure.").wait_for()
        self.assertEqual(other.get_by_label("factor").input_value(), "3")
        self.assertEqual(other.get_by_label("series").input_value(), "R5")
        page.reload()
        page.get_by_text("about 6 min 40 s after its first failure.").wait_for()

    def test_a_kind_has_its_own_fields(self):
        page = self.open()
        page.get_by_label("kind").select_option("steps")
        self.problem(page).filter(has_text="kind is steps, but no step is given").wait_for()
        self.assertFalse(page.get_by_label("factor").is_visible())
        self.type(page, steps="10s, 1m, 1h")
        page.get_by_text("A message that fails 4 times is parked").wait_for()
        page.get_by_label("kind").select_option("linear")
        page.get_by_text("A message that fails 10 times is parked").wait_for()

    def test_the_largest_simulation_is_refused_and_small_ones_are_quick(self):
        page = self.open()
        self.type(page, capacity="1e6")
        self.problem(page).filter(has_text="the simulation is too large for a page").wait_for()

    def test_strategies_without_a_ladder_have_delays_and_no_rungs(self):
        page = self.open()
        page.get_by_label("strategy").select_option("message-ttl")
        page.get_by_text("This strategy has no ladder.").wait_for()
        self.assertEqual(len(self.rows(page, "Delays")[0]), 4)
        page.get_by_label("strategy").select_option("reject")
        self.problem(page).filter(has_text="strategy reject has one fixed delay").wait_for()

    def test_it_loads_nothing_from_elsewhere_and_can_be_read_by_all(self):
        for scheme in ("light", "dark"):
            for width in (1300, 390):
                with self.subTest(scheme=scheme, width=width):
                    page = self.open(color_scheme=scheme, viewport={"width": width, "height": 800})
                    self.assertEqual([each for each in self.loads if not each.startswith(("file:", "data:"))], [])
                    self.assertFalse(page.evaluate("document.scrollingElement.scrollWidth > window.innerWidth"))
                    self.assertEqual(self.errors, [])
                    page.evaluate(AXE.read_text())
                    found = page.evaluate("axe.run('#policy-playground')")["violations"]
                    self.assertEqual([(each["id"], each["nodes"][0]["html"]) for each in found], [])

    def test_without_webassembly_or_scripts_the_page_says_so(self):
        page = self.page(script="delete globalThis.WebAssembly")
        self.problem(page).filter(has_text="This browser has no WebAssembly").wait_for()
        page = self.page(java_script_enabled=False)
        page.get_by_text("This page needs JavaScript and WebAssembly.").wait_for()


if __name__ == "__main__":
    unittest.main()
