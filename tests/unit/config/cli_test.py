"""The program gaccd as its users see it: output, messages, exit codes.

  cli_test.py GACCD                   runs the tests
  cli_test.py --update-golden GACCD   rewrites tests/golden/plan_3072.txt from the program
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "golden" / "plan_3072.txt"
THE_COMMAND = ["--nodes", "30", "--target-batch", "3072"]
KEYS = (
    "mode nodes gpus_per_node world micro_batch base_batch target_batch effective_batch ratio error_ratio "
    "accum_steps ranks_hi ranks_hi_samples ranks_lo ranks_lo_samples balance_ratio lr_factor"
).split()
LAUNCHER_VARIABLES = ("SLURM_", "OMPI_", "PMIX_", "PMI_")
# Of a rank: Open MPI keeps what it allocated, which AddressSanitizer counts as leaks.
WITHOUT_LEAKS = {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}


def run(*args, **more_environment):
    """Runs gaccd outside of any launcher, in an empty folder that must stay empty."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(LAUNCHER_VARIABLES)}
    environment.update(more_environment)
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([GACCD, *args], cwd=folder, env=environment, text=True,
                              capture_output=True, timeout=60)
        assert os.listdir(folder) == [], f"{args} left {os.listdir(folder)}"
    return done


class TrainTest(unittest.TestCase):
    JOB = pathlib.Path(__file__).resolve().parents[3] / "slurm" / "examples" / "linear.txtpb"

    def train(self, *args):
        return run("train", f"--job={self.JOB}", "--target-batch=64", "--max-updates=3",
                   "--device=cpu", *args)

    def checkpoints(self, *args):
        """Of a short run with a folder."""
        with tempfile.TemporaryDirectory() as folder:
            done = self.train(f"--run-dir={folder}", *args)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertNotIn("checkpoint step-", done.stdout)
            return sorted(p.parent.name for p in pathlib.Path(folder).glob("ckpt/step-*/MANIFEST"))

    def test_a_run_with_a_folder_has_checkpoints(self):
        self.assertEqual(self.checkpoints(), ["step-000000000003-e000001"])
        self.assertEqual(self.checkpoints("--save-every-seconds=0"), [])
        self.assertEqual(len(self.checkpoints("--save-every-seconds=0", "--save-every-updates=2")), 2)

    def test_saves_and_resumes_are_events(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(self.train(f"--run-dir={folder}").returncode, 0)
            (pathlib.Path(folder) / "DONE").unlink()
            done = self.train(f"--run-dir={folder}", "--max-updates=5", "--save-every-updates=4")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("resumed after update 3, from checkpoint step-000000000003-e000001\n", done.stdout)
            events = [json.loads(line) for line in
                      (pathlib.Path(folder) / "attempts/latest/events.jsonl").read_text().splitlines()]
            status = json.loads((pathlib.Path(folder) / "STATUS.json").read_text())
        # When a save is on the disk is the disk's affair.
        self.assertEqual([e["ev"] for e in events if e["ev"] not in ("log", "save")],
                         [*["starting"] * 4, "run_start", "plan", "resume", "step", "step", "memory", "verdict"])
        (resume,), saves = [e for e in events if e["ev"] == "resume"], [e for e in events if e["ev"] == "save"]
        self.assertEqual((resume["step"], resume["samples_total"]), (3, 192))
        self.assertEqual(resume["folder"], f"{folder}/ckpt")
        self.assertEqual([(e["step"], e["writer_epoch"], e["ok"]) for e in saves], [(4, 2, True), (5, 2, True)])
        self.assertEqual({e["bytes"] for e in (resume, *saves)}, {resume["bytes"]})
        self.assertGreaterEqual(resume["bytes"], 11 * 4)
        self.assertGreater(saves[0]["dur_s"], 0)
        self.assertEqual(status["save_step"], 5)

    def test_an_empty_attempt_folder_is_none(self):
        with tempfile.TemporaryDirectory() as folder:
            done = run("train", f"--job={self.JOB}", "--target-batch=64", "--max-updates=1", "--device=cpu",
                       f"--run-dir={folder}", GACCD_ATTEMPT_DIR="")
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_without_a_folder_only_explicit_requests_are_refused(self):
        self.assertEqual(self.train().returncode, 0)
        for flag in ("--save-every-seconds=600", "--keep=2", "--keep-every=9", "--failed-saves=1", "--group-access"):
            done = self.train(flag)
            self.assertEqual((done.returncode, "--run-dir" in done.stderr), (64, True), done.stderr)
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(self.train("--group-access", f"--save-weights={folder}/w").returncode, 0)


class PlanTest(unittest.TestCase):
    def test_golden_text(self):
        done = run(*THE_COMMAND)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr, "")
        self.assertEqual(done.stdout, GOLDEN.read_text(), f"see the head of {__file__}")
        lines = done.stdout.splitlines()
        self.assertLessEqual(len(lines), 40)
        self.assertLessEqual(max(map(len, lines)), 80)

    def test_plan_of_a_job_has_updates_tail_decay_and_memory(self):
        job = """name: "tail"
model { layer { name: "fc" linear { in: 10 out: 1 } } loss { mean_squared_error {} } }
data { train { synthetic { samples: 1050 } } }
batch { target: 100 }  optimizer { lr: 0.1 adamw { weight_decay: 0.5 } }  epochs: 3
"""
        elsewhere = 'eval { npy { features: "x.npy" targets: "y.npy" } }'
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "job.txtpb")
            path.write_text(job)
            done = run("plan", f"--job={path}")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn("  updates        33 of the run\n", done.stdout)
            self.assertIn("1050 samples an epoch: 10 updates, then one of 50\n", done.stdout)
            self.assertIn("0.5 for 1 of 2 (fc.weight); 0 for 1 (fc.bias)\n", done.stdout)
            # The size of packed weights depends on the CPU.
            self.assertRegex(done.stdout, r"  memory +[0-9.]+ kB a rank")
            self.assertNotIn("recompute", done.stdout)  # one product has no block
            done = run("plan", f"--job={path}", "--last-cycle=drop")
            self.assertIn("10 updates, 50 are left out\n", done.stdout)
            path.write_text(job.replace("1050 } }", "1050 } } " + elsewhere))
            done = run("plan", f"--job={path}")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("  not known      cannot open the data file 'x.npy'", done.stdout)

    def test_a_batch_that_is_not_the_target_gives_a_warning(self):
        floor = ("plan", "--nodes=2", "--micro-batch=10", "--rounding=floor")
        self.assertIn("an update has 160 samples, the target is 5; it has at least one base batch; ",
                      run(*floor, "--target-batch=5").stderr)
        self.assertIn("--rounding=floor: an update has 160 samples, the target is 165; --rounding=exact",
                      run(*floor, "--target-batch=165").stderr)
        self.assertEqual(run(*floor, "--target-batch=320").stderr, "")

    def test_what_cannot_train_is_an_error_after_the_plan(self):
        job = """name: "wrong"
model { layer { name: "a" linear { in: 10 out: 3 } } layer { name: "b" linear { in: 4 out: 1 } }
        loss { mean_squared_error {} } }
data { train { synthetic { samples: 1050 } } }
batch { target: 100 }  optimizer { lr: 0.1 sgd {} }  epochs: 3
"""
        small = job.replace("in: 4", "in: 3").replace("1050", "50")
        # Words of the user are no lack of memory, which would be that of this machine alone.
        group = job.replace("in: 4", "in: 3").replace("sgd {}", 'sgd {} group { match: "no memory for" freeze: true }')
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "job.txtpb")
            for text in (job, small, group):
                path.write_text(text)
                done = run("plan", f"--job={path}", "--last-cycle=drop")
                self.assertEqual(done.returncode, 78, done.stdout + done.stderr)
                self.assertIn("  not known ", done.stdout)
                self.assertIn("error (config, exit 78): ", done.stderr)

    def test_ranks_without_standard_descriptors(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "job.txtpb")
            path.write_text("""name: "closed"  model { layer { name: "fc" linear { in: 4 out: 1 } } loss { mean_squared_error {} } }
data { train { synthetic { samples: 15 features: 4 } } }  batch { target: 7 micro: 3 }  optimizer { lr: 0.1 sgd {} }
epochs: 1
""")
            done = subprocess.run(["bash", "-c", 'exec "$0" "$@" <&- >&- 2>&-', GACCD, "train", "--local-ranks=2",
                                   f"--job={path}", "--device=cpu"], timeout=60, check=False,
                                  env={**os.environ, **WITHOUT_LEAKS})
            self.assertEqual(done.returncode, 0)

    def test_plan_and_train_refuse_the_same_jobs(self):
        job = """name: "refused"
model { layer { name: "n" batch_norm { num_features: 4 stats: STATS } } layer { name: "fc" linear { in: 4 out: 1 } }
        loss { mean_squared_error {} } }
data { train { synthetic { samples: 15 features: 4 } } eval { synthetic { samples: 5 features: 4 seed: 2 } } }
batch { target: 7 micro: 3 }  optimizer { lr: 0.1 sgd {} }  epochs: 2
"""
        plain = job.replace('layer { name: "n" batch_norm { num_features: 4 stats: STATS } }', "")
        whole = job.replace("STATS", "WINDOW")
        pairs = """name: "refused"
model { dual_encoder { a { input: "features" layer { name: "fc" linear { in: 4 out: 8 } } }
                       b { input: "targets" layer { name: "fc" linear { in: 1 out: 8 } } } width: 4 }
        loss { contrastive {} } }
data { train { synthetic { samples: 15 features: 4 } } }
batch { target: 7 micro: 3 }  optimizer { lr: 0.1 sgd {} }  epochs: 2
"""
        stages = plain.replace("target: 7", "target_schedule { stage { at_update: 0 target: 7 } "
                                            "stage { at_update: 1 target: 8 } }")
        drop = "--last-cycle=drop"
        cases = [(whole, (), "batch_norm of one value per channel: expected at least 2 samples"),
                 (pairs, (), "contrastive: expected at least 2 samples in every update"),
                 (plain, ("--set", "evaluation.metric=foo"), "evaluation.metric: expected one of loss, found foo"),
                 (pairs, (drop, "--set", "noise_scale_every=1"), "found a contrastive loss"),
                 (job.replace("STATS", "MICRO"), (drop, "--set", "noise_scale_every=1", "--micro-batch=7"),
                  "found batch norms with stats MICRO"),
                 (whole, (drop, "--on-nonfinite=drop-micro-batch"), "expected stop or skip-update"),
                 (whole, (drop, "--rebalance=auto"), "expected 2 to 4096 ranks, found 1"),
                 (stages, ("--speed=measured",), "batch.target_schedule: loads by measured speeds")]
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "job.txtpb")
            for text, flags, why in cases:
                path.write_text(text)
                for verb in (("plan", "--gpus-per-node=1"), ("train", "--local-ranks=1")):
                    done = run(*verb, f"--job={path}", "--device=cpu", *flags, **WITHOUT_LEAKS)
                    self.assertEqual(done.returncode, 78, (verb, why, done.stdout + done.stderr))
                    self.assertIn(why, done.stderr, verb)
            path.write_text(plain)
            self.assertEqual(run("plan", f"--job={path}", "--on-nonfinite=drop-micro-batch", "--rebalance=auto",
                                 "--gpus-per-node=2").returncode, 0)

    def test_json_is_one_valid_line_with_the_promised_keys(self):
        for rounding in ("exact", "floor", "ceil", "nearest"):
            for target in ("1", "100", "3072", "9223372036854775807"):
                done = run("--nodes=30", "--target-batch", target, "--micro-batch=1",
                           f"--rounding={rounding}", "--format=json")
                if rounding in ("ceil", "nearest") and target == "9223372036854775807":
                    self.assertEqual(done.returncode, 78, "the multiple above does not fit")
                    continue
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(done.stdout.count("\n"), 1)
                plan = json.loads(done.stdout)
                self.assertEqual(list(plan), KEYS)
                self.assertEqual(plan["mode"], rounding)
                self.assertEqual(plan["target_batch"], int(target))
                for key, value in plan.items():
                    if key.endswith("ratio") or key == "lr_factor":
                        self.assertIsInstance(value, (int, float))
                    elif key != "mode":
                        self.assertIsInstance(value, int)
                total = (plan["ranks_hi"] * plan["ranks_hi_samples"]
                         + plan["ranks_lo"] * plan["ranks_lo_samples"])
                self.assertEqual(total, plan["effective_batch"])

    def test_ranks_are_lines_whose_samples_are_the_batch(self):
        done = run("plan", "--ranks", "--format=json", "--nodes=2", "--gpus-per-node=2", "--target-batch=7",
                   "--micro-batch=1")
        self.assertEqual(done.returncode, 0, done.stderr)
        plan, *ranks = map(json.loads, done.stdout.splitlines())
        self.assertEqual(list(plan), KEYS)
        self.assertEqual(ranks, [{"rank": 0, "first": 0, "samples": 1, "micro_batches": [1, 0]},
                                 {"rank": 1, "first": 1, "samples": 2, "micro_batches": [1, 1]},
                                 {"rank": 2, "first": 3, "samples": 2, "micro_batches": [1, 1]},
                                 {"rank": 3, "first": 5, "samples": 2, "micro_batches": [1, 1]}])
        for wrong, text in ((["--ranks"], "--ranks needs --format=json, found --format=text"),
                            (["--ranks", "--format=json", "--micro-batch=1", "--gpus-per-node=1000000",
                              "--target-batch=17000000"], "found 1000000 ranks with 17")):
            done = run("plan", "--target-batch=7", *wrong)
            self.assertEqual((done.returncode, text in done.stderr), (64, True), done.stderr)

    def test_samples_of_every_rank_and_update(self):
        args = ["samples", "--dataset-size=10", "--target-batch=4", "--micro-batch=1", "--gpus-per-node=3"]
        unshuffled = run(*args, "--set=data.shuffle=false", "--first-update=2", "--updates=2")
        self.assertEqual((unshuffled.returncode, unshuffled.stderr), (0, ""))
        self.assertEqual(unshuffled.stdout, """update 2 of 3, epoch 1: 4 samples
  rank 0: 4 |
  rank 1: 5 |
  rank 2: 6 | 7
update 3 of 3, epoch 1: 2 samples
  rank 0:
  rank 1: 8
  rank 2: 9
""")
        carry = [json.loads(line) for line in
                 run(*args, "--epochs=2", "--last-cycle=carry", "--format=json", "--seed=3").stdout.splitlines()]
        self.assertEqual(len(carry), 15)
        self.assertEqual(sorted(sum((line["samples"] for line in carry), [])), sorted([*range(10)] * 2))
        self.assertEqual(list(carry[0]), ["update", "updates", "epoch", "epoch_end", "update_samples", "rank",
                                          "micro_batches", "samples"])
        self.assertEqual([line["epoch_end"] for line in carry[::3]], [False, False, True, False, True])
        (one,) = run(*args, "--rank=2", "--format=json", "--updates=1", "--epochs=2", "--last-cycle=carry",
                     "--seed=3").stdout.splitlines()
        self.assertEqual(json.loads(one), carry[2])
        self.assertEqual(run(*args, "--updates=0").stdout, "")

    def test_samples_of_a_job_are_those_of_its_data(self):
        job = TrainTest.JOB
        done = run("samples", f"--job={job}", "--target-batch=64", "--gpus-per-node=2", "--updates=1", "--format=json",
                   "--seed=8")
        self.assertEqual(done.returncode, 0, done.stderr)
        first = json.loads(done.stdout.splitlines()[0])
        same = run("samples", "--dataset-size=2048", "--micro-batch=8", "--epochs=10", "--target-batch=64",
                   "--gpus-per-node=2", "--updates=1", "--format=json", "--seed=8")
        self.assertEqual(json.loads(same.stdout.splitlines()[0]), first)

    def test_samples_that_cannot_be_are_refused(self):
        for args, code, text in ((["--target-batch=4"], 64, "needs --dataset-size=N or --job=FILE"),
                                 (["--target-batch=4", "--dataset-size=9", "--rank=8"], 64, "below 8, found 8"),
                                 (["--target-batch=4", "--dataset-size=9", "--first-update=4"], 64,
                                  "at most 3, the updates of the run, found 4"),
                                 (["--target-batch=4", "--dataset-size=3"], 78, "at least 4 samples (the batch), found 3")):
            done = run("samples", *args)
            self.assertEqual((done.returncode, done.stdout), (code, ""))
            self.assertIn(text, done.stderr)

    def test_strict_prints_the_plan_and_exits_78(self):
        done = run(*THE_COMMAND, "--strict", "--rounding=ceil")
        self.assertEqual(done.returncode, 78)
        self.assertIn("4800", done.stdout)
        self.assertTrue(done.stderr.startswith("gaccd: error (config, exit 78): "), done.stderr)
        self.assertEqual(run(*THE_COMMAND, "--strict").returncode, 0)

    def test_output_that_cannot_be_written_is_an_error(self):
        with open("/dev/full", "w") as full:
            done = subprocess.run([GACCD, "plan", *THE_COMMAND], stdout=full, text=True,
                                  stderr=subprocess.PIPE, timeout=60)
        self.assertEqual(done.returncode, 74)


    def test_a_reader_that_closes_the_pipe_is_no_crash(self):
        """As `gaccd plan | head -1`, but surely gone before the first byte."""
        for args in (["plan", *THE_COMMAND], ["help"], ["version"]):
            read, write = os.pipe()
            os.close(read)
            done = subprocess.run([GACCD, *args], stdout=write, stderr=subprocess.PIPE, timeout=60)
            os.close(write)
            self.assertEqual((done.returncode, done.stderr), (74, b""), args)


class ReadmeTest(unittest.TestCase):
    README = (pathlib.Path(__file__).resolve().parents[3] / "README.md").read_text()

    def test_its_job_trains(self):
        job = re.search(r'```\n(name: "first"\n.*?)```', self.README, re.DOTALL).group(1)
        self.assertLessEqual(job.count("\n"), 10)
        with tempfile.NamedTemporaryFile("w", suffix=".txtpb") as file:
            file.write(job)
            file.flush()
            done = run("train", f"--job={file.name}", "--max-updates=2")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_it_shows_the_plan_as_it_is(self):
        self.assertTrue(GOLDEN.read_text() in self.README, "README.md shows another plan")


class JsonTest(unittest.TestCase):
    JOB = TrainTest.JOB

    def lines(self, *args):
        done = run(*args, "--format=json")
        self.assertEqual(done.returncode, 0, done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def test_keys_that_scripts_read_are_stable(self):
        with tempfile.TemporaryDirectory() as folder:
            done = run("train", f"--job={self.JOB}", "--target-batch=64", "--max-updates=3",
                       "--device=cpu", f"--run-dir={folder}")
            self.assertEqual(done.returncode, 0, done.stderr)
            [listed] = self.lines("ckpt", "ls", folder)
            self.assertEqual(" ".join(listed),
                             "generation step micro_step writer_epoch state ranks bytes created")
            self.assertEqual((listed["step"], listed["state"]), (3, "complete"))
            [verified] = self.lines("ckpt", "verify", folder)
            self.assertEqual(verified["state"], "ok")
            self.assertIn("ckpt verify checks the contents", run("ckpt", "ls", folder).stdout)
            [verdict] = self.lines("verdict", f"--attempt-dir={folder}/attempts/latest")
            self.assertEqual(" ".join(verdict), "attempt verdict exit held reason suspect_hosts")
            self.assertEqual((verdict["verdict"], verdict["exit"]), ("done", 0))
            [status] = self.lines("status", folder)
            promised = re.findall(r"\w+", run("help", "status").stdout.split("--format=json")[1])
            self.assertEqual([key for key in status if key not in promised], [])

    def test_selftest_has_a_line_per_mode(self):
        for flag in ("--shard=optimizer", "--pipeline=2", "--recompute=blocks", "--bits=any-split"):
            done = run("selftest", flag)
            self.assertEqual((done.returncode, "with --job=FILE" in done.stderr), (64, True), done.stderr)
        modes = self.lines("selftest", "--nodes=1", "--gpus-per-node=3")
        self.assertEqual([one["mode"] for one in modes], ["exact", "floor", "ceil", "nearest"])
        self.assertEqual(" ".join(modes[0]),
                         "mode nodes gpus_per_node micro_batch target_batch effective_batch accum_steps "
                         "deviation mean_of_means last_micro_batch_only "
                         "tokens_deviation mean_of_rank_means passed")
        self.assertTrue(all(one["passed"] for one in modes))
        promised = re.findall(r"\w+", run("help", "selftest").stdout.split("--format=json")[1])
        self.assertEqual([key for key in modes[0] if key not in promised], [])


class HelpTest(unittest.TestCase):
    def test_help_and_version_exit_0_and_fit_the_terminal(self):
        verbs = [line.split()[0] for line in run("help").stdout.split("\n\n")[2].splitlines()]
        self.assertGreaterEqual(len(verbs), 20)
        for args in (["help"], ["--help"], ["-h"], ["train", "--help"], ["help", "job"], ["version"], ["--version"],
                     *(["help", verb] for verb in verbs)):
            done = run(*args)
            self.assertEqual(done.returncode, 0, args)
            self.assertEqual(done.stderr, "")
            self.assertGreater(len(done.stdout), 20)
            self.assertLessEqual(max(map(len, done.stdout.splitlines())), 80, args)

    def test_help_names_every_flag(self):
        text = "".join(run("help", verb).stdout for verb in ("plan", "train", "ckpt", "verdict"))
        for flag in ("nodes gpus-per-node micro-batch target-batch rounding strict lr-rule "
                     "reference-batch last-cycle format job config run-dir epochs max-updates seed "
                     "log-every init-weights save-weights bound device precision tf32 deterministic "
                     "allow-gpu-sharing allow-emulation time-algorithms save-every-updates save-every-seconds resume keep keep-every "
                     "failed-saves group-access out stop-signals term-budget on-nonfinite "
                     "on-bad-record bad-record-quota digest-every heartbeat-seconds attempt-dir "
                     "srun-rc speed rebalance").split():
            self.assertIn(f"--{flag}", text)

    def test_help_shows_flags_that_are_on_by_default(self):
        text = " ".join(run("help", "train").stdout.split())
        self.assertRegex(text, r"--group-by-length for texts [^(]* \(default true\)")
        self.assertNotIn("(default false)", text)

    def test_help_explains_itself_and_lists_the_formats_of_a_verb(self):
        self.assertIn("manual page", run("help", "help").stdout)
        self.assertIn("--format=CHOICE       text or json: output format", run("help", "status").stdout)
        export = " ".join(run("help", "export").stdout.split())
        self.assertIn("--format=CHOICE csv, chrome-trace, otlp-json, tensorboard or prometheus: output", export)
        self.assertNotIn("(default text)", export)

    def test_without_arguments_it_is_the_overview(self):
        done = run()
        self.assertEqual((done.returncode, done.stdout), (0, run("help").stdout), done.stderr)

    def test_a_usage_error_names_the_help_of_its_verb(self):
        for args in (["train"], ["train", "--nonsense"], ["verdict"], ["ckpt", "ls"]):
            self.assertIn(f"\nTry: gaccd help {args[0]}\n", run(*args).stderr)
        self.assertIn("\nTry: gaccd help\n", run("--nonsense").stderr)

    def test_help_has_priority_inside_a_step(self):
        step = {"SLURM_STEP_ID": "0", "SLURM_PROCID": "0"}
        self.assertEqual(run("--help", **step).returncode, 0)


class BadInputTest(unittest.TestCase):
    def check(self, code, kind, quoted, *args, **environment):
        done = run(*args, **environment)
        self.assertEqual(done.returncode, code, (args, done.stderr))
        self.assertEqual(done.stdout, "")
        self.assertIn(f"error ({kind}, exit {code}): ", done.stderr)
        self.assertIn(quoted, done.stderr)
        return done.stderr

    def test_flags(self):
        for value in ("0", "-1", "x", "1.5", "99999999999999999999", "0x"):
            for flag in ("--nodes", "--gpus-per-node", "--micro-batch", "--target-batch"):
                self.check(64, "usage", f"{flag}={value}", flag, value)
        self.check(64, "usage", "'--nodse'", "--nodse", "3")
        self.check(64, "usage", "'plna'", "plna")
        self.check(64, "usage", "--nodes needs a value", "--nodes")
        self.check(64, "usage", "target batch is missing", "plan")
        self.check(78, "config", "9223372036854775807", "--nodes=9223372036854775807",
                   "--target-batch=1")

    def test_a_run_folder_that_is_not_there(self):
        for verb in ("status", "doctor", "logs"):
            self.check(64, "usage", "'runs/nope' does not exist", verb, "runs/nope")

    def test_flag_files(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "a.flags")
            for line, quoted in (("--nodse=3", "'--nodse=3'"), ("--nodes", "needs a value"),
                                 ("--nodes=x", "--nodes=x"), ("--nodes=0", "--nodes=0")):
                pathlib.Path(path).write_text(f"--seed=1\n{line}\n")
                text = self.check(64, "usage", quoted, f"--flagfile={path}")
                self.assertIn(f"{path}:2: ", text)
            self.check(74, "io", "missing", f"--flagfile={folder}/missing")

    def test_local_ranks_of_a_verb_that_has_no_ranks(self):
        """One process prints once: the flag belongs to train, whose flags plan accepts and a flag file shares."""
        plan = ("plan", "--nodes=2", "--target-batch=64")
        once = run(*plan)
        self.assertEqual(once.returncode, 0, once.stderr)
        self.assertEqual(run(*plan, "--local-ranks=2").stdout, once.stdout)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "a.flags")
            pathlib.Path(path).write_text("--local-ranks=2\n")
            self.assertEqual(run(*plan, f"--flagfile={path}").stdout, once.stdout)
            done = run("version", f"--flagfile={path}")
            self.assertEqual(done.stdout, run("version").stdout)
        self.check(64, "usage", "status takes no --local-ranks", "status", "--local-ranks=2")
        for verb in (("plan",), ("samples", "--dataset-size=64")):  # of the ranks that a training starts
            local = run(*verb, "--target-batch=64", "--local-ranks=3")
            self.assertEqual(local.stdout, run(*verb, "--target-batch=64", "--gpus-per-node=3").stdout)

    def test_job_files(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "job.txtpb")
            for text, quoted in (("name: \"a\"\nepoch: 3", f"{path}:2:6: "),
                                 ("name: \"a\"\nmodel {", f"{path}:2:"),
                                 ("name: \"a b\"", "found 'a b'")):
                pathlib.Path(path).write_text(text)
                self.check(78, "config", quoted, f"--job={path}", "--nodes=1")
            pathlib.Path(path).write_bytes(b"\x00\xff" * 1000)
            self.check(78, "config", path, f"--job={path}")
            self.check(74, "io", "missing", f"--job={folder}/missing")
            self.check(74, "io", folder, f"--job={folder}")

    def test_devices(self):
        plan = ("--target-batch=64", "--nodes=1")
        self.check(78, "config", "tf32: only GPUs round to TF32", *plan, "--device=cpu", "--tf32")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "job.txtpb")
            layers = "".join(f'layer {{ name: "{n}" linear {{ in: {i} out: 10 }} }} '
                             for n, i in (("a", 784), ("b", 11)))
            pathlib.Path(path).write_text(
                f'name: "x" model {{ {layers} loss {{ softmax_cross_entropy {{}} }} }} '
                'data { train { idx { images: "i" labels: "l" } } } optimizer { lr: 1 sgd {} }')
            # The functions of the model are looked at where they matter, without the data.
            self.assertEqual(run(f"--job={path}", *plan).returncode, 0)
            self.check(78, "config", "layer 'b'", f"--job={path}", *plan, "--device=cuda")
            pathlib.Path(path).write_text(pathlib.Path(path).read_text().replace("11", "10"))
            done = run(f"--job={path}", *plan, "--device=cuda")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("x 8 GPUs (default)", done.stdout)

    def test_the_shell_of_salloc_is_no_rank(self):
        # As with LaunchParameters=use_interactive_step.
        shell = {"SLURM_JOB_ID": "8", "SLURM_STEP_ID": "4294967290", "SLURM_STEPID": "4294967290", "SLURM_PROCID": "0",
                 "SLURM_STEP_NUM_TASKS": "1", "SLURM_NTASKS": "8"}
        self.assertEqual(run("--nodes=2", "--target-batch=64", **shell).returncode, 0)
        self.assertEqual(run(**shell).stdout, run("help").stdout)
        job = pathlib.Path(__file__).resolve().parents[3] / "slurm" / "examples" / "linear.txtpb"
        text = self.check(78, "config", "MPI has 1 rank but SLURM_NTASKS=8", "train", f"--job={job}", "--target-batch=64",
                          "--max-updates=1", **shell)
        self.assertNotIn("rank 0 on ", text)

    def test_a_rank_prints_its_rank_and_host(self):
        text = self.check(64, "usage", "--nodes=0", "--nodes=0", SLURM_STEP_ID="0",
                          SLURM_PROCID="17")
        self.assertTrue(text.startswith("gaccd: rank 17 on "), text)
        self.check(64, "usage", "rank 3 on ", "--nodes=0", OMPI_COMM_WORLD_SIZE="4",
                   OMPI_COMM_WORLD_RANK="3")


if __name__ == "__main__":
    if "--update-golden" in sys.argv:
        sys.argv.remove("--update-golden")
        GACCD = os.path.abspath(sys.argv.pop())
        GOLDEN.write_text(run(*THE_COMMAND).stdout)
        sys.exit(0)
    GACCD = os.path.abspath(sys.argv.pop())
    unittest.main()
