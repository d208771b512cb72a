"""Makes the files of a run of many ranks, as gaccd leaves them, without training.

  replay.py FOLDER [--ranks=240] [--updates=2000] [--attempts=3] [--lines=200]

Each attempt but the last is lost a quarter before its end, and the next one does these updates again.
"""

import argparse
import datetime
import json
import os
import pathlib
import random

START = datetime.datetime(2026, 11, 20, 3, 0, 0)


class Attempt:
    def __init__(self, folder, number, begin, ranks, run):
        self.folder = folder / "attempts" / f"{number:03d}-812"
        for name in ("log", "crash"):
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

    def step(self, step, total):
        self.now += datetime.timedelta(seconds=0.842)
        slow = random.randrange(self.ranks)
        self.event("step", epoch=1, step=step, steps_total=total, samples=3072, target=3072,
                   samples_total=3072 * step, loss=2.3 + 5 / step, loss_finite=True, divisor=3072,
                   unit="samples", grad_norm=0.8123, grad_finite=True, lr=0.0003, skipped=False,
                   dur_s=0.8421, data_s=0.0112, fwd_bwd_s=0.691, reduce_s=0.1104, opt_s=0.0295,
                   wait_s=0.0412, samples_per_s=3648.0, dur_p50_s=0.8388, dur_p99_s=0.912, eta_s=75451.5,
                   straggler_rank=slow, straggler_host=self.hosts[slow], straggler_phase="compute",
                   straggler_ratio=1.07)

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


def make(folder, ranks=240, updates=2000, attempts=3, lines=200, run="r50"):
    folder = pathlib.Path(folder)
    random.seed(1)
    begin, done = START, 0
    for number in range(attempts):
        attempt = Attempt(folder, number, begin, ranks, run)
        attempt.text_logs(lines)
        attempt.event("run_start", version="0.1.0", git="abc", nodes=ranks // 8, world=ranks, model="mlp",
                      device="cuda")
        attempt.event("plan", mode="exact", target_batch=3072, eff_batch=3072, accum_steps=2,
                      balance_ratio=0.98)
        if number:
            attempt.event("resume", step=done, dur_s=1.5)
        last = number == attempts - 1
        end = (number + 1) * updates // attempts
        for step in range(done + 1, end + 1):
            attempt.step(step, updates)
            if step % max(1, updates // 40) == 0:
                attempt.event("save", step=step, ok=True, bytes=10**9, stall_s=0.1, dur_s=1.0)
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
    make(**vars(parser.parse_args()))
