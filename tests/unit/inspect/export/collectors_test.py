"""The settings for collectors of logs in tools/dashboards, against the files of a real run.

  collectors_test.py GACCD
"""

import glob
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import yaml

DASHBOARDS = pathlib.Path(__file__).resolve().parents[4] / "tools" / "dashboards"
JOB = """
name: "job" model { layer { name: "fc" linear { in: 10 out: 1 } } loss { mean_squared_error {} } }
data { train { synthetic { samples: 40 } } } batch { target: 10 micro: 10 }
optimizer { lr: 0.1 sgd {} }
"""


class CollectorsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        (cls.folder / "job.txtpb").write_text(JOB)
        for run, epochs in (("a", 1), ("a", 2), ("sweep/0-lr=1", 1)):  # the second start resumes
            subprocess.run([GACCD, "train", f"--job={cls.folder}/job.txtpb", f"--epochs={epochs}", "--log-every=2",
                            f"--run-dir={cls.folder}/scratch/runs/{run}"],
                           stdout=subprocess.DEVNULL, timeout=120, check=True)
        cls.attempts = sorted((cls.folder / "scratch/runs/a/attempts").glob("[0-9]*"))

    def test_the_log_profile_reads_the_text_log(self):
        profile = yaml.safe_load((DASHBOARDS / "logprofile.yaml").read_text())["spec"]
        found = {name: [] for name in profile["patterns"]}
        for attempt in self.attempts:
            for line in (attempt / "log/gaccd.INFO").read_text().splitlines():
                for name, pattern in profile["patterns"].items():
                    if match := re.search(pattern["regex"], line):
                        found[name].append(match.groupdict())
        stamps = [one.pop("timestamp") for matches in found.values() for one in matches]
        for stamp in stamps:
            self.assertRegex(stamp, r"^\d{8} \d\d:\d\d:\d\d\.\d{6}$")  # the layout, in Go's spelling
        self.assertEqual(len(found["applicationStart"]), 2)
        self.assertEqual([(one["epoch"], one["globalStep"]) for one in found["trainingStep"]],
                         [("1", "2"), ("1", "4"), ("2", "6"), ("2", "8")])
        self.assertTrue(all(float(one["loss"]) > 0 for one in found["trainingStep"]))
        self.assertEqual([one["step"] for one in found["checkpointDone"]], ["4", "8"])
        self.assertEqual(found["checkpointLoaded"], [{"step": "4", "path": found["checkpointDone"][0]["path"]}])

    def test_the_log_profile_reads_steps_of_tokens_and_weights(self):
        profile = yaml.safe_load((DASHBOARDS / "logprofile.yaml").read_text())["spec"]
        (line, *_) = (line for line in (self.attempts[0] / "log/gaccd.INFO").read_text().splitlines()
                      if ", loss is " in line)
        start = line.split(", loss is ")[0]
        for rest in ("5.692782 (mean of 64 tokens), lr 0.001", "5.692782 (weighted mean; the weights sum to 12), lr 1"):
            match = re.search(profile["patterns"]["trainingStep"]["regex"], f"{start}, loss is {rest}")
            self.assertEqual((match["globalStep"], match["loss"]), ("2", "5.692782"))

    def test_collectors_of_events_find_each_file_once_and_its_keys(self):
        alloy = (DASHBOARDS / "events.alloy").read_text()
        fluent = yaml.safe_load((DASHBOARDS / "fluent-bit.yaml").read_text())
        attempts = self.attempts + list(self.folder.glob("scratch/runs/sweep/*/attempts/[0-9]*"))
        self.assertEqual(len(attempts), 3)
        for paths in (re.findall(r'__path__ = "([^"]+)"', alloy),
                      fluent["pipeline"]["inputs"][0]["path"].split(",")):
            self.assertEqual(sorted(file for path in paths for file in glob.glob(f"{self.folder}{path}")),
                             [f"{attempt}/events.jsonl" for attempt in attempts])
        keys = set(re.findall(r"(\w+) = \"\"", alloy)) | {fluent["parsers"][0]["time_key"]}
        keys |= {fluent["pipeline"]["outputs"][0]["label_keys"].removeprefix("$")}
        self.assertEqual(keys, {"ts", "run"})
        for line in (self.attempts[0] / "events.jsonl").read_text().splitlines():
            self.assertLessEqual(keys, json.loads(line).keys())

    def test_the_start_and_the_memory_are_events(self):
        events = [json.loads(line) for line in (self.attempts[1] / "events.jsonl").read_text().splitlines()]
        stages = [event["stage"] for event in events if event["ev"] == "starting"]
        self.assertEqual(stages, ["data", "device", "memory", "checkpoint"])
        memory, = (event for event in events if event["ev"] == "memory")
        self.assertTrue(0 < memory["planned_bytes"] < 100e6 and 0 < memory["measured_bytes"] < 100e6, memory)

    def test_jobs_are_mapped_to_gpus_and_back(self):
        folder = self.folder / "dcgm"

        def call(context, job, gpus):
            subprocess.run([DASHBOARDS / "dcgm-job-mapping"], check=True, timeout=60, env={
                **os.environ, "DCGM_HPC_JOB_MAPPING_DIR": str(folder), "SLURM_SCRIPT_CONTEXT": context,
                "SLURM_JOB_ID": job, **({"SLURM_JOB_GPUS": gpus} if gpus else {})})
            return {file.name: file.read_text().split() for file in folder.glob("*")}

        self.assertEqual(call("prolog_slurmd", "7", None), {})
        self.assertEqual(call("prolog_slurmd", "81", "0,3"), {"0": ["81"], "3": ["81"]})
        self.assertEqual(call("prolog_slurmd", "8", "3"), {"0": ["81"], "3": ["81", "8"]})
        self.assertEqual(call("epilog_slurmd", "8", "3"), {"0": ["81"], "3": ["81"]})
        self.assertEqual(call("epilog_slurmd", "81", "0,3"), {})


if __name__ == "__main__":
    GACCD = sys.argv.pop(1)
    unittest.main(verbosity=2)
