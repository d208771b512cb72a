"""The page of `gaccd report` in a real browser: no script error, nothing over the edge, the curves' values.

  report_browser_test.py GACCD [FOLDER]    with FOLDER, keeps the screenshots there

Chromium is that of Debian (chromium-headless-shell or chromium).
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import chromium

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "export"))
import replay  # noqa: E402

SKIPPED = 77  # CTest's SKIP_RETURN_CODE
NAME = 'a "b"\n$(touch x) </script><script>document.title="broken"</script> \\ c'

# What sticks out of a page of WIDTH pixels to the right; what scrolls by itself may. Not innerWidth: on
# a phone that grows with the page.
OVERFLOW = """[...document.querySelectorAll('main *')].filter(e => {
  if (e.closest('.scroll, pre, svg') || getComputedStyle(e).display === 'none') return false;
  return e.getBoundingClientRect().right > WIDTH + 1;
}).map(e => e.outerHTML.slice(0, 80))"""
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
        cls.page, cls.both = root / "report.html", root / "both.html"
        for page, runs in ((cls.page, ["run"]), (cls.both, ["run", "other"])):
            subprocess.run([GACCD, "report", *(root / run for run in runs), f"--out={page}"], check=True,
                           capture_output=True, timeout=60)
        cls.browser = chromium.Chromium()

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        cls.folder.cleanup()

    def test_every_width_and_scheme_is_readable(self):
        for page in (self.page, self.both):
            for width in (1280, 390):
                for scheme in ("light", "dark"):
                    with self.subTest(page=page.name, width=width, scheme=scheme):
                        self.browser.open(page, width, scheme)
                        self.assertEqual(self.browser.problems, [])
                        self.assertEqual(self.browser.value(OVERFLOW.replace("WIDTH", str(width))), [])
                        self.assertGreater(self.browser.value(CONTRAST), 4.5)
                        self.browser.screenshot(f"{self.shots}/{page.stem}-{width}-{scheme}.png")

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
        self.browser.open(self.page, 1280)
        self.assertEqual(self.browser.value("document.title"), "run")
        self.assertIn("$(touch x) </script>", self.browser.value("document.querySelector('h1').innerText"))
        self.assertEqual(self.browser.value("document.scripts.length"), 1)

    def test_languages_switch_without_network(self):
        self.browser.open(self.page, 1280)
        heads = "[...document.querySelectorAll('h2')].map(h => h.innerText).join(' ')"
        self.assertIn("Curves", self.browser.value(heads))
        self.browser.value("document.getElementById('zh').click()")
        self.assertIn("曲线", self.browser.value(heads))
        self.assertNotIn("Curves", self.browser.value(heads))
        self.browser.screenshot(f"{self.shots}/zh.png")

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
