"""Makes the files of a run of many ranks, as gaccd leaves them, without training.

  replay.py FOLDER [--ranks=240] [--updates=2000] [--attempts=3] [--lines=200] [--noise=0]

Each attempt but the last is lost a quarter before its end, and the next one does these updates again.
The second host of a run is slow in the middle third of the updates. --noise: of the loss, relative.
"""

import argparse
import datetime
import json
import math
import os
import pathlib
import random

START = datetime.datetime(2026, 11, 20, 3, 0, 0)


class Attempt:
    def __init__(self, folder, number, begin, ranks, run):
        self.folder = folder / "attempts" / f"{number:03d}-812"
        for name in ("log", "crash", "ev"):
            (self.folder / name).mkdir(parents=True)
        self.number, self.now, self.ranks, self.run = number, begin, ranks, run
        self.seq = 0
        self.hosts = [f"n{rank // 8 + 1}" for rank in range(ranks)]
        rows = [f"{rank}\t{host}\t{rank // 8}\t{rank % 8}\t1\t{1000 + rank}\n"
                for rank, host in enumerate(self.hosts)]
        (self.folder / "ranks.tsv").write_text("rank\thost\tnode\tlocal\tcpus\tpid\n" + "".join(rows))
        self.events = (self.folder / "events.jsonl").open("w")

    def line(self, event, rank=0, level="info", seq=None, **more):
        return json.dumps({"v": 1, "ts": self.now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"), "run": self.run,
                           "job": "812", "attempt": self.number, "rank": rank, "host": self.hosts[rank],
                           "ev": event, "lvl": level, "seq": seq or self.seq, **more},
                          separators=(",", ":")) + "\n"

    def event(self, event, **more):
        self.seq += 1
        self.events.write(self.line(event, **more))

    def step(self, step, total, noise):
        at_slow_host = self.ranks > 8 and 3 * step // total == 1
        slow = random.randrange(8, 16) if at_slow_host else random.randrange(self.ranks)
        wait = random.uniform(0.06, 0.2) if at_slow_host else random.uniform(0.02, 0.05)
        compute = random.gauss(0.691, 0.005)
        times = {"data_s": 0.0112, "fwd_bwd_s": compute, "reduce_s": 0.07 + wait, "opt_s": 0.0295}
        duration = sum(times.values())
        self.now += datetime.timedelta(seconds=duration)
        warm = min(1, 20 * step / total)
        self.event("step", epoch=1, step=step, steps_total=total, samples=3072, target=3072,
                   samples_total=3072 * step, loss=(2.3 + 5 / step) * math.exp(random.gauss(0, noise)),
                   loss_finite=True, divisor=3072, unit="samples",
                   grad_norm=random.lognormvariate(-0.2, 0.2), grad_finite=True,
                   lr=0.0003 * warm * (1 + math.cos(math.pi * step / total)), skipped=False,
                   dur_s=duration, **times, wait_s=wait, samples_per_s=3072 / duration,
                   mfu_ratio=3072 / duration * 2.7e13 / (self.ranks * 989.4e12),
                   dur_p50_s=0.8388, dur_p99_s=0.99 if at_slow_host else 0.912,
                   eta_s=0.84 * (total - step), straggler_rank=slow, straggler_host=self.hosts[slow],
                   straggler_phase="compute", straggler_ratio=1 + wait / compute)

    def rank_steps(self, step):
        for rank in range(self.ranks):
            with (self.folder / "ev" / f"r{rank:05d}.jsonl").open("a") as own:
                own.write(self.line("rank_step", rank, seq=step, step=step, updates=10, dur_s=0.84 + rank / 1e6,
                                    dur_max_s=0.9, data_s=0.01, fwd_bwd_s=0.7, reduce_s=0.1, opt_s=0.03,
                                    wait_s=0.04, memory_bytes=10**9 + rank))

    def text_logs(self, lines):
        for rank in range(self.ranks):
            name = f"r{rank:05d}.gaccd.INFO.20261120-030000.{1000 + rank}"
            with (self.folder / "log" / name).open("w") as log:
                for line in range(lines):
                    at = self.now + datetime.timedelta(milliseconds=1000 * line + rank)
                    log.write(f"I{at:%Y%m%d %H:%M:%S.%f} r{rank} s{line} run_reporter.cc:296] epoch: 1 "
                              f"step: {line}, loss is 1.402374, lr 0.1, 51.2k samples/s, 0:07\n")

    def crash(self):
        for rank in range(self.ranks):
            self.now += datetime.timedelta(milliseconds=1)
            (self.folder / "crash" / f"r{rank:05d}.json").write_text(
                self.line("failure", rank, "error", 1, exit=69, step=1, lost_ranks="5", msg="rank 5 was lost"))
        (self.folder / "verdict.json").write_text(
            self.line("verdict", 1, verdict="requeue", exit=69, suspect_hosts="n1",
                      reason="rank 5 on n1 was lost: it sent no heartbeat for 5 s"))


def make(folder, ranks=240, updates=2000, attempts=3, lines=200, run="r50", noise=0.0, rounding="exact"):
    folder = pathlib.Path(folder)
    random.seed(1)
    begin, done = START, 0
    for number in range(attempts):
        attempt = Attempt(folder, number, begin, ranks, run)
        attempt.text_logs(lines)
        attempt.event("run_start", version="0.1.0", git="abc", nodes=ranks // 8, world=ranks, model="mlp",
                      flops_per_sample=2.7e13, peak_flops=989.4e12, device="cuda", gpu="NVIDIA H100 80GB HBM3")
        attempt.event("plan", mode=rounding, nodes=max(1, ranks // 8), gpus_per_node=min(8, ranks),
                      world=ranks, micro_batch=10, base_batch=10 * ranks, target_batch=3072,
                      effective_batch=3072, accum_steps=2, balance_ratio=0.98)
        (attempt.folder / "env.json").write_text(json.dumps(
            {"NCCL_DEBUG": ("WARN", "INFO")[number % 2], "SLURM_JOB_ID": "812"}))
        (attempt.folder / "job.txtpb").write_text(f'name: "r50"\nepochs: {3 + number}\n')
        if number:
            attempt.event("resume", step=done, dur_s=1.5)
        last = number == attempts - 1
        end = (number + 1) * updates // attempts
        for step in range(done + 1, end + 1):
            attempt.step(step, updates, noise)
            if step % max(1, updates // 20) == 0:
                attempt.rank_steps(step)
            if step % max(1, updates // 40) == 0:
                attempt.event("save", step=step, ok=True, bytes=10**9, stall_s=0.1, dur_s=1.0)
                attempt.event("eval", step=step, metric="top_1", value=0.76 - 0.6 * math.exp(-4 * step / updates),
                              dur_s=1.0)
        attempt.event("eval", step=end, metric="accuracy", value=0.9, dur_s=1.0)
        if last:
            attempt.event("verdict", verdict="done", exit=0)
        else:
            attempt.crash()
            done = end - updates // attempts // 4
        attempt.events.close()
        begin = attempt.now + datetime.timedelta(minutes=3)
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    (folder / "STATUS.json").write_text(json.dumps(
        {"v": 1, "ts": now, "run": run, "job": "812", "attempt_dir": f"attempts/{attempts - 1:03d}-812",
         "host": "n1", "state": "running", "world": ranks, "step": updates, "steps_total": updates}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    for name, value in (("ranks", 240), ("updates", 2000), ("attempts", 3), ("lines", 200)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--noise", type=float, default=0)
    make(**vars(parser.parse_args()))
