"""What `gaccd export` writes, read by the programs it is for.

  programs_test.py GACCD

promtool, prometheus and node_exporter are those of Debian.
"""

import csv
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import replay
import scrape

SKIPPED = 77  # CTest's SKIP_RETURN_CODE
DASHBOARDS = pathlib.Path(__file__).resolve().parents[4] / "tools" / "dashboards"
NAME = 'a "b"\n$(touch x) \\ c'
METRIC = re.compile(r"\bgaccd_[a-z_]+")


def export(run, form, *args):
    return subprocess.run([GACCD, "export", str(run), f"--format={form}", *args], text=True,
                          capture_output=True, timeout=60, check=True).stdout


class ProgramsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        os.chdir(cls.folder.name)
        cls.runs = pathlib.Path(cls.folder.name) / "runs"
        cls.run_dir = cls.runs / NAME
        replay.make(cls.run_dir, ranks=16, updates=60, attempts=2, lines=5, run=NAME)
        (cls.run_dir / "attempts/001-812/env.json").write_text('{"SLURM_JOB_END_TIME":"1795200000"}')
        replay.make(cls.runs / "other", ranks=8, updates=5, attempts=1, lines=5)
        cls.metrics = export(cls.runs, "prometheus")
        cls.names = set(re.findall(r"^# TYPE (\S+)", cls.metrics, re.MULTILINE))

    @classmethod
    def tearDownClass(cls):
        os.chdir("/")
        cls.folder.cleanup()

    def promtool(self, *args, **more):
        done = subprocess.run(["promtool", *args], text=True, capture_output=True, timeout=60, check=False,
                              **more)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)

    def known(self, expression):
        """The metrics in it, without what a histogram adds to its name."""
        found = set(METRIC.findall(re.sub(r"\{[^}]*\}", "", expression)))
        return {re.sub(r"_(bucket|sum|count)$", "", name) for name in found}

    def test_promtool_reports_nothing(self):
        self.promtool("check", "metrics", input=self.metrics)
        self.promtool("check", "rules", str(DASHBOARDS / "alerts.yml"))
        self.promtool("test", "rules", str(DASHBOARDS / "alerts_test.yml"))

    def expressions_of_panels(self):
        boards = sorted(DASHBOARDS.glob("*.json"))
        self.assertEqual([board.stem for board in boards], ["fleet", "ranks", "run"])
        for board in boards:
            content = json.loads(board.read_text())
            self.assertEqual(content["uid"], f"gaccd-{board.stem}")
            yield from (target["expr"] for panel in content["panels"] for target in panel["targets"])

    def test_every_metric_of_rules_and_panels_is_exported(self):
        rules = (DASHBOARDS / "alerts.yml").read_text()
        used = self.known("".join(re.findall(r"expr:(.*?)\n *(?:for|labels|annotations):", rules, re.DOTALL)))
        self.assertGreater(len(used), 8)
        for expression in self.expressions_of_panels():
            used |= self.known(expression)
        self.assertEqual(used - self.names, set())

    def test_prometheus_understands_every_panel(self):
        rules = pathlib.Path(self.folder.name) / "panels.yml"
        records = [{"record": f"panel_{number}", "expr": expression.replace("$run", "c++")}
                   for number, expression in enumerate(self.expressions_of_panels())]
        rules.write_text(json.dumps({"groups": [{"name": "panels", "rules": records}]}))  # JSON is YAML, too
        self.promtool("check", "rules", str(rules))

    def test_shares_of_the_phases_add_up_to_one(self):
        (share,) = (expression for expression in self.expressions_of_panels()
                    if 'phase!="wait"' in expression and "/" in expression)
        seconds = {"data": 1, "forward_backward": 6, "reduce": 3, "wait": 2, "eval": 30, "checkpoint": 10}
        series = [{"series": f'gaccd_phase_seconds_total{{run="a",slurm_job_id="1",phase="{phase}"}}',
                   "values": f"0+{more}x20"} for phase, more in seconds.items()]
        series.append({"series": 'gaccd_step_duration_seconds_sum{run="a",slurm_job_id="1"}', "values": "0+10x20"})
        samples = [{"labels": f'{{run="a",slurm_job_id="1",phase="{phase}"}}', "value": seconds[phase] / 50}
                   for phase in seconds if phase != "wait"]
        test = {"interval": "1m", "input_series": series, "promql_expr_test": [
            {"expr": f"round({share.replace('$run', 'a')}, 0.01)", "eval_time": "10m", "exp_samples": samples}]}
        rules = pathlib.Path(self.folder.name) / "shares.yml"
        rules.write_text(json.dumps({"tests": [test]}))
        self.promtool("test", "rules", str(rules))

    def test_prometheus_scrapes_every_metric_through_node_exporter(self):
        folder = pathlib.Path(self.folder.name) / "scrape"
        folder.mkdir()
        export(self.runs, "prometheus", f"--out={folder}/gaccd.prom")
        with scrape.Prometheus(folder, DASHBOARDS / "alerts.yml") as prometheus:
            self.assertIn("node_textfile_scrape_error 0", prometheus.scraped)
            found = {labels["__name__"] for labels, _ in prometheus.query('{__name__=~"gaccd_.*"}')}
            plain = {re.sub(r"_(bucket|sum|count)$", "", name) for name in found}
            self.assertEqual(self.names - plain - found, set())
            runs = {labels["run"]: value for labels, value in prometheus.query("gaccd_steps_total")}
            self.assertEqual(runs, {NAME: "67", "other": "5"}, "7 updates were repeated")
            (flops,) = prometheus.query('gaccd_model_flops_total{run="other"}')
            self.assertEqual(float(flops[1]), 5 * 3072 * 2.7e13)
            (peak,) = prometheus.query('gaccd_peak_flops{run="other"}')
            self.assertEqual(float(peak[1]), 8 * 989.4e12)
            memory = {(labels["rank"], labels["node"]): value for labels, value
                      in prometheus.query('gaccd_rank_memory_bytes{run="other"}')}
            self.assertEqual(memory, {(str(rank), "n1"): str(10**9 + rank) for rank in range(8)})

    def test_csv_is_read_by_python(self):
        rows = list(csv.DictReader(io.StringIO(export(self.run_dir, "csv"), newline="")))
        steps = [row for row in rows if row["ev"] == "step"]
        self.assertEqual(len(steps), 67)
        self.assertEqual({row["run"] for row in rows}, {NAME})
        self.assertEqual(sum(row["ev"] == "failure" for row in rows), 16)
        self.assertEqual(float(steps[0]["loss"]), 7.3)

    def test_no_command_in_a_name_was_run(self):
        for form in ("csv", "chrome-trace", "otlp-json", "prometheus"):
            export(self.run_dir, form)
        subprocess.run([GACCD, "doctor", str(self.run_dir)], capture_output=True, timeout=60, check=False)
        self.assertFalse(os.path.exists("x"))


if __name__ == "__main__":
    if missing := scrape.missing():
        print(f"skipped: no {', '.join(missing)}: tools/dev/packages test")
        sys.exit(SKIPPED)
    GACCD = os.path.abspath(sys.argv.pop())
    unittest.main()
