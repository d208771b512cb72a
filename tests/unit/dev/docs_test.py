#!/usr/bin/env python3
"""The pages for users: links lead somewhere, paths and commands exist, the README is short.

  docs_test.py GACCD     without GACCD the commands are not compared with its help
"""
import os
import re
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
GACCD = sys.argv.pop(1) if len(sys.argv) > 1 and os.access(sys.argv[1], os.X_OK) else None
README = ROOT / "README.md"
SKIPPED = {"build", "out", "runs", ".git"}
PAGES = sorted(page for page in ROOT.rglob("*.md")
               if not any(part in SKIPPED or part.startswith("build") for part in page.relative_to(ROOT).parts))
FOR_USERS = [README, *sorted((ROOT / "daemon/docs").glob("*.md")), ROOT / "slurm/OPERATORS.md",
             ROOT / "slurm/COMING_FROM.md"]
LINK = re.compile(r"\[[^]]*\]\(([^)\s]+)\)")
PATH = re.compile(r"(?<![\w/.$-])((?:collectives|daemon|proto|slurm|tests|tools)/[\w./-]*\w)")
FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)


def anchors(page):
    """What GitHub makes of the headings of a page."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def commands(page):
    """(verb, its flags) of every command of gaccd, in blocks and in lines of text."""
    text = page.read_text(encoding="utf-8")
    lines = "\n".join(FENCE.findall(text)).replace("\\\n", " ").splitlines()
    lines += re.findall(r"(?<!`)`([^`\n]+)`(?!`)", FENCE.sub("", text))
    for line in lines:
        found = re.match(r"(?:\$ |srun .*?|apptainer .*?)?gaccd +(?:([a-z]+)(?=\s|$)|(?=--))(.*)",
                         line.split("  #")[0])
        if found and found[1] != "help":
            yield found[1] or "plan", re.findall(r"(?:^|\s)(--[a-z][a-z0-9-]*)", found[2].split(" -- ")[0])


class Docs(unittest.TestCase):
    def test_links_have_targets(self):
        for page in PAGES:
            for link in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
                if re.match(r"[a-z]+:", link):
                    continue
                path, _, anchor = link.partition("#")
                target = (page.parent / path).resolve() if path else page
                self.assertTrue(target.exists(), f"{page.relative_to(ROOT)}: {link}")
                if anchor:
                    self.assertIn(anchor, anchors(target), f"{page.relative_to(ROOT)}: {link}")

    def test_paths_exist(self):
        for page in FOR_USERS:
            for path in PATH.findall(page.read_text(encoding="utf-8")):
                self.assertTrue((ROOT / path).exists() or "NAME" in path, f"{page.relative_to(ROOT)}: {path}")

    def test_the_readme_is_short_and_names_every_page(self):
        self.assertLessEqual(README.read_text(encoding="utf-8").count("\n"), 220)
        index = (ROOT / "daemon/docs/README.md").read_text(encoding="utf-8")
        for page in (ROOT / "daemon/docs").glob("*.md"):
            self.assertTrue(page.name == "README.md" or f"]({page.name})" in index, page.name)

    def test_no_page_has_a_path_of_a_machine(self):
        for page in FOR_USERS:
            self.assertIsNone(re.search(r"/work/|/home/|/root/|/tmp/", page.read_text(encoding="utf-8")), page)

    @unittest.skipUnless(GACCD, "no gaccd given")
    def test_commands_are_those_of_the_help(self):
        helps, seen = {}, 0
        for page in FOR_USERS:
            for verb, flags in commands(page):
                if verb not in helps:
                    done = subprocess.run([GACCD, "help", verb], text=True, capture_output=True, timeout=20)
                    self.assertEqual(done.returncode, 0, f"{page.relative_to(ROOT)}: gaccd {verb}")
                    helps[verb] = done.stdout
                    if "Flags of train are accepted" in done.stdout:
                        done = subprocess.run([GACCD, "help", "train"], text=True, capture_output=True, timeout=20)
                        helps[verb] += done.stdout
                for flag in flags:
                    seen += 1
                    self.assertIn(flag, helps[verb], f"{page.relative_to(ROOT)}: gaccd {verb} {flag}")
        self.assertGreater(seen, 20)


if __name__ == "__main__":
    unittest.main()
