"""The page of `gaccd report` in a real browser: what it draws of its data, in which words, at every width.

  report_browser_test.py GACCD [FOLDER]    with FOLDER, keeps the screenshots there

Chromium is that of Debian (chromium-headless-shell or chromium).
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import chromium

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "export"))
import replay  # noqa: E402

SAMPLE = pathlib.Path(__file__).resolve().parents[4] / "daemon" / "inspect" / "report" / "page.html"
SKIPPED = 77  # CTest's SKIP_RETURN_CODE
NAME = 'a "b"\n$(touch x) </script><script>document.title="broken"</script> \\ c'

# What sticks out of a page of WIDTH pixels to the right; what scrolls by itself may. Not innerWidth: on
# a phone that grows with the page.
OVERFLOW = """[...document.querySelectorAll('main *')].filter(e => {
  if (e.closest('.scroll, pre, svg') || getComputedStyle(e).display === 'none') return false;
  return e.getBoundingClientRect().right > WIDTH + 1;
}).map(e => e.outerHTML.slice(0, 80))"""
# Names of columns, tiles and sections, and sentences: all words that are not those of the run.
WORDS = """[...document.querySelectorAll('h2, th, dt, figcaption, .note, .legend, .state')]
  .map(e => e.innerText.trim())"""
TEXT = "document.querySelector('main').innerText"
# The weakest contrast of a text on its card.
CONTRAST = """(() => {
  const luminance = color => {
    const parts = color.match(/[0-9.]+/g).slice(0, 3).map(c => c / 255)
      .map(c => c <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4);
    return .2126 * parts[0] + .7152 * parts[1] + .0722 * parts[2];
  };
  const card = luminance(getComputedStyle(document.querySelector('.card')).backgroundColor);
  let least = 99;
  for (const e of document.querySelectorAll('h1, h2, p, td, th, dt, dd, .plot > span, figcaption')) {
    const text = luminance(getComputedStyle(e).color);
    least = Math.min(least, (Math.max(card, text) + .05) / (Math.min(card, text) + .05));
  }
  return least;
})()"""


class BrowserTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        root = pathlib.Path(cls.folder.name)
        cls.shots = SHOTS or root
        replay.make(root / "run", updates=600, lines=1, run=NAME, noise=0.02)
        replay.make(root / "other", ranks=16, updates=300, attempts=1, lines=1, noise=0.03)
        replay.make(root / "short", ranks=8, updates=1, attempts=1, lines=1)
        replay.make(root / "two", ranks=16, updates=2, attempts=1, lines=1, rounding="nearest")
        cls.page, cls.both, cls.en, cls.zh, cls.short, cls.shorts, cls.two = (
            cls.report(root / f"{name}.html", *arguments) for name, arguments in {
                "report": ("run",), "both": ("run", "other"), "en": ("run", "--language=en"),
                "zh": ("run", "--language=zh"), "short": ("short",), "shorts": ("short", "short"),
                "two": ("two",)}.items())
        cls.browser = chromium.Chromium()

    @staticmethod
    def report(page, *arguments):
        subprocess.run([GACCD, "report", *arguments, f"--out={page}"], check=True, capture_output=True, timeout=60,
                       cwd=page.parent)
        return page

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        cls.folder.cleanup()

    def test_every_width_and_scheme_is_readable(self):
        for page in (self.page, self.both, SAMPLE):
            for width in (1280, 390):
                for scheme in ("light", "dark"):
                    with self.subTest(page=page.name, width=width, scheme=scheme):
                        self.browser.open(page, width, scheme)
                        self.assertEqual(self.browser.problems, [])
                        self.assertEqual(self.browser.value(OVERFLOW.replace("WIDTH", str(width))), [])
                        self.assertLessEqual(self.browser.value("document.documentElement.scrollWidth"), width)
                        self.assertGreater(self.browser.value(CONTRAST), 4.5)
                        self.browser.screenshot(f"{self.shots}/{page.stem}-{width}-{scheme}.png")

    def test_the_page_itself_shows_every_section_of_its_sample(self):
        self.browser.open(SAMPLE, 1280)
        self.assertEqual(self.browser.value("SECTIONS.filter(draw => !draw(DATA.runs[0])).map(draw => draw.name)"), [])
        self.assertEqual(self.browser.value("document.querySelectorAll('.card').length"), 13)
        self.assertIn("Sample data", self.browser.value(TEXT))
        self.browser.value("document.getElementById('zh').click()")
        self.assertIn("示例数据", self.browser.value(TEXT))
        self.assertEqual(self.browser.problems, [])
        self.browser.open(self.page, 1280)
        self.assertNotIn("Sample data", self.browser.value(TEXT))

    def test_curves_carry_the_values_of_the_events(self):
        self.browser.open(self.page, 1280)
        drawn = {}
        for path in self.browser.value("[...document.querySelectorAll('path[data-curve=loss]')].map("
                                       "p => [p.dataset.x, p.dataset.y, p.getTotalLength()])"):
            self.assertGreater(path[2], 0)
            drawn.update(zip(map(int, path[0].split()), map(float, path[1].split()), strict=True))
        written = {}
        for events in sorted((self.page.parent / "run").glob("attempts/*/events.jsonl")):
            for event in map(json.loads, events.read_text().splitlines()):
                if event["ev"] == "step":
                    written[event["step"]] = event["loss"]
        self.assertGreater(len(drawn), 300)
        self.assertEqual({step: written[step] for step in drawn}, drawn)
        for extreme in (min, max):
            self.assertEqual(extreme(drawn.values()), extreme(written.values()))

    def test_names_of_a_run_are_text(self):
        for page in (self.page, self.en):
            self.browser.open(page, 1280)
            self.assertEqual(self.browser.value("document.title"), "run")
            self.assertIn("$(touch x) </script>", self.browser.value("document.querySelector('h1').innerText"))
            self.assertEqual(self.browser.value("document.scripts.length"), 2)  # the data and the script
            self.assertEqual(self.browser.problems, [])

    def test_languages_switch(self):
        self.browser.open(self.page, 1280)
        heads = "[...document.querySelectorAll('h2')].map(h => h.innerText).join(' ')"
        self.assertIn("Curves", self.browser.value(heads))
        self.browser.value("document.getElementById('zh').click()")
        self.assertIn("曲线", self.browser.value(heads))
        self.assertNotIn("Curves", self.browser.value(heads))
        self.browser.screenshot(f"{self.shots}/zh.png")

    def test_a_page_of_one_language_has_no_word_of_the_other(self):
        chinese = re.compile("[\u4e00-\u9fff]")
        cells = "[...document.querySelectorAll('td, .name, .state')].map(e => e.innerText.trim())"
        of_runs = {"running", "requeue", "done", "compute", "ok", "exact", "floor", "ceil", "forward and backward"}
        self.browser.open(self.en, 1280)
        self.assertNotRegex(self.browser.value("document.body.innerText"), chinese)
        self.assertEqual(of_runs - set(self.browser.value(cells)), set())
        self.browser.open(self.zh, 1280)
        self.assertEqual(self.browser.value("document.documentElement.lang"), "zh")
        for words in self.browser.value(WORDS):
            self.assertTrue(chinese.search(words) or words in ("", "rank"), words)
        self.assertEqual(of_runs & set(self.browser.value(cells)), set())
        self.assertIn("作业 812", self.browser.value(TEXT))
        # Of words that are not on these pages, too: both languages have the same values.
        odd = self.browser.value("""(() => {
          const places = text => String([...new Set(text.match(/\\{\\d/g))].sort());
          return Object.entries(WORDS).filter(([, {en, zh}]) =>
            /[\u4e00-\u9fff]/.test(en) || places(en) !== places(zh));
        })()""")
        self.assertEqual(odd, [])

    def test_repeated_updates_are_drawn_faint(self):
        self.browser.open(self.page, 1280)
        again = self.browser.value("[...document.querySelectorAll('.lost[data-curve=loss]')].map(p => p.dataset.x)")
        self.assertEqual([(steps.split()[0], steps.split()[-1]) for steps in again], [("151", "200"), ("351", "400")])

    def test_a_curve_of_one_point_is_a_dot(self):
        self.browser.open(self.short, 1280)
        self.assertEqual(self.browser.value("document.querySelector('.dots[data-curve=loss]').getAttribute('d')"),
                         "M500.0 150.0h0")
        self.assertEqual(self.browser.value("document.querySelector('.plot .x').style.left"), "50%")
        self.assertRegex(self.browser.value("document.querySelector('.area.p0').getAttribute('d')"),
                         r"^M0\.0 [0-9.]+L1000\.0 ")
        self.browser.open(self.shorts, 1280)
        # loss, both metrics, gradient norm, learning rate and seconds of both runs
        self.assertEqual(self.browser.value("document.querySelectorAll('.dots[data-x=\"1\"]').length"), 2 * 6)
        self.assertEqual(self.browser.problems, [])

    def test_every_update_takes_its_place_in_the_phases(self):
        # From the left edge of the first bin to the right edge of the last one.
        edges = """document.querySelector('.area.p0').getAttribute('d').match(/[ML][0-9.]+/g)
          .slice(0, 2 * DATA.runs[0].phases.bins.length).map(place => Number(place.slice(1)))"""
        self.browser.open(self.two, 1280)
        self.assertEqual(self.browser.value(edges), [0, 500, 500, 1000])
        self.browser.open(SAMPLE, 1280)  # its last bin has one update of four
        *others, begin, end = self.browser.value(edges)
        self.assertEqual((len(others), others[0], end), (10, 0, 1000))
        self.assertLess(begin, end)

    def test_the_rounding_that_was_asked_for_is_the_one_that_is_chosen(self):
        for page, name in ((self.two, "nearest"), (self.page, "exact")):
            for width in (1280, 390):
                self.browser.open(page, width)
                self.assertEqual(self.browser.value("[...document.querySelectorAll('.bar.chosen .name')]"
                                                    ".map(e => e.innerText.trim())"), [name])
                self.assertEqual(self.browser.value("[...document.querySelectorAll('.bar .name')]"
                                                    ".filter(e => e.scrollWidth > e.clientWidth).length"), 0)

    def test_an_evaluation_that_is_not_finite_is_reported(self):
        self.browser.open(SAMPLE, 1280)
        figures = "{...DATA.runs[0].figures, evals: [{metric: 'accuracy', value: null}]}"
        self.assertIn("not finite", self.browser.value(
            f"[...sectionFigures({{figures: {figures}}}).querySelectorAll('dd')]"
            ".find(e => e.textContent.endsWith('accuracy')).textContent"))
        row = f"""[...comparedFigures([{{...DATA.runs[0], figures: {figures}}}], ['accuracy', 'loss'])
          .querySelectorAll('td')].slice(6, 8).map(e => e.textContent)"""
        self.assertEqual(self.browser.value(row), ["not finite非有限值", "-"])

    def test_a_loss_that_is_not_finite_is_reported(self):
        self.browser.open(SAMPLE, 1280)
        figures = "{...DATA.runs[0].figures, loss: null, nonfinite_losses: 1, skipped: 1}"
        tiles = (f"[...sectionFigures({{figures: {figures}}}).querySelectorAll('dl > div')]"
                 ".map(e => e.querySelector('dt').textContent + ': ' + e.querySelector('dd').textContent)")
        for text in ("training loss, last最新训练损失: not finite", "repeated and skipped updates included",
                     "1 loss was not finite"):
            self.assertIn(text, "\n".join(self.browser.value(tiles)))

    def test_one_is_singular(self):
        self.browser.open(self.short, 1280)
        text = self.browser.value(TEXT)
        self.assertIn("counted exactly in 1 of 1 update\n", text)
        self.assertNotRegex(text, r"\b1 (ranks|updates|samples|nodes|losses)\b")
        figures = "{...DATA.runs[0].figures, lost_updates: 1}"
        self.assertIn("1 update was repeated", self.browser.value(f"sectionFigures({{figures: {figures}}}).textContent"))

    def test_a_phone_shows_all_of_a_reason(self):
        self.browser.open(self.page, 390)
        edges = self.browser.value("[...document.querySelectorAll('tr.why > td[colspan=\"6\"] > div')]"
                                   ".map(e => e.getBoundingClientRect().right)")
        self.assertEqual(len(edges), 2)
        self.assertLess(max(edges), 390)
        self.assertEqual(self.browser.value("[...document.querySelectorAll('tr.why div')]"
                                            ".filter(e => e.scrollWidth > e.clientWidth).length"), 0)

    def test_numbers_are_as_people_read_them(self):
        self.browser.open(SAMPLE, 1280)
        for expression, text in {
                "count(1228800)": "1,228,800", "count(-1234)": "-1,234", "count(999)": "999",
                "number(2.3144)": "2.314", "number(0.0003)": "0.0003", "number(1.2e9)": "1.2e+09",
                "number(0.000012)": "1.2e-05", "number(null)": "?", "seconds(2.5e-17)": "0 s",
                "seconds(0.842)": "842 ms", "seconds(12.34)": "12.3 s", "seconds(7384)": "2:03:04",
                "seconds(100)": "1:40", "longTime(20 * 86400)": "20 d", "bytes(1.25e9)": "1.25 GB",
                "rate(987.4)": "987", "rate(51234)": "51.2k", "rate(4.8e10)": "48.0G", "percent(0.1234)": "12.3 %",
                "percent(1)": "100 %", "percent(0)": "0 %", "signedPercent(0.28)": "+28.0 %",
                "signedPercent(0)": "0 %", "time(1795143600)": "2026-11-20 03:00:00"}.items():
            self.assertEqual(self.browser.value(expression), text, expression)

    def test_axes_have_room_and_round_ticks(self):
        self.browser.open(SAMPLE, 1280)
        for values, logarithmic, marks in (
                ([2, 7.3, 4], True, [2, 4, 6]), ([0.01, 10, 0.5], True, [0.01, 0.1, 1, 10]),
                ([0.12, 7], True, [0.2, 0.5, 1, 2, 5]), ([0.01, 10], False, [0, 5, 10]),
                ([-1, 100], True, [0, 50, 100]), ([0.001, 0.001], True, [0.001]), ([0], True, [0])):
            scale = f"scaleFor({json.dumps(values)}, {json.dumps(logarithmic)})"
            self.assertEqual(self.browser.value(f"ticks({scale}, 5)"), marks)
            for value in values:
                self.assertTrue(0 <= self.browser.value(f"shareOf({scale}, {value})") <= 1)
        for values in ([1e308, -1e308], [1e-320, 2e-320], [1e-9, 1e300]):
            self.assertTrue(self.browser.value(
                f"(s => s.low < s.high && ticks(s, 5).length < 102 && Number.isFinite(shareOf(s, {values[1]})))"
                f"(scaleFor({json.dumps(values)}, true))"))

    def test_the_pointer_shows_the_values_under_it(self):
        self.browser.open(self.page, 1280)
        box = self.browser.value("(() => {const p = document.querySelector('.plot'); p.scrollIntoView();"
                                 "const b = p.getBoundingClientRect(); return [b.left, b.top, b.width]})()")
        self.browser.point(box[0] + box[2] / 2, box[1] + 50)
        self.assertRegex(self.browser.value("document.querySelector('.plot .tip').innerText"),
                         r"^loss 2\.\d+ @ \d+$")
        self.assertEqual(self.browser.problems, [])
        self.browser.screenshot(f"{self.shots}/pointer.png", whole=False)


if __name__ == "__main__":
    if chromium.program() is None:
        print(f"skipped: no {' and no '.join(chromium.NAMES)}: tools/dev/packages test")
        sys.exit(SKIPPED)
    GACCD = os.path.abspath(sys.argv[1])
    SHOTS = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else None
    unittest.main(argv=sys.argv[:1])
