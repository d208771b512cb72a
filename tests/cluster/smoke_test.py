#!/usr/bin/env python3
"""The rig itself: four nodes that are different hosts, and MPI across them."""

import json
import signal
import time

from support import ClusterTest, main, program


class Smoke(ClusterTest):
    def test_every_node_is_its_own_host(self):
        hosts = self.cluster.run(["srun", "-N4", "hostname"]).stdout.split()
        self.assertEqual(sorted(hosts), ["n1", "n2", "n3", "n4"])

    def test_nodes_do_not_share_tmp(self):
        script = "test ! -e /tmp/mark && hostname > /tmp/mark && sleep 1 && cat /tmp/mark"
        marks = self.cluster.run(["srun", "-N4", "bash", "-c", script]).stdout.split()
        self.assertEqual(sorted(marks), ["n1", "n2", "n3", "n4"])

    def test_mpi_sees_all_ranks(self):
        command = ["srun", "-N4", "--ntasks-per-node=2", "--mpi=pmix", program("GACCD_MPI_PROBE")]
        lines = self.cluster.run(command).stdout.splitlines()
        self.assertEqual(lines[0], "size 8 sum 28")
        hosts = [line.split()[-1] for line in lines[1:]]
        self.assertEqual(sorted(hosts), sorted(["n1", "n2", "n3", "n4"] * 2))

    def test_gaccd_check_under_srun(self):
        srun = ["srun", "-N4", "--ntasks-per-node=2", "--mpi=pmix"]
        text = self.cluster.run([*srun, program("GACCD"), "check"]).stdout
        self.assertIn("8 ranks on 4 nodes; the same on all:", text)
        lines = text[text.index("  rank "):].splitlines()[1:9]
        self.assertEqual([line.split()[:3] for line in lines],
                         [[str(r), f"n{r // 2 + 1}", str(r % 2)] for r in range(8)])
        done = self.cluster.run([*srun, program("GACCD"), "check", "--format=json"])
        reports = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual([r["host"] for r in reports], [f"n{r // 2 + 1}" for r in range(8)])
        self.assertEqual({r["local_size"] for r in reports}, {2})
        # Several nodes, so the limit of locked memory counts: it is what the ranks really have.
        if reports[0]["memlock_bytes"] >= 0:
            self.assertIn("warning: ranks 0-7 on n[1-4]: may lock", text)
            self.assertIn("warning: ranks 0-7 on n[1-4]: may lock", done.stderr)

    def test_processes_are_found_and_killed(self):
        job = self.cluster.sbatch(self._sleeper(), options=["-N4", "--ntasks-per-node=2"])
        deadline = time.monotonic() + 120
        while len(found := self.cluster.processes("sleep")) < 8 + 4:  # 4 of the nodes' own
            self.assertLess(time.monotonic(), deadline, found)
            time.sleep(0.2)
        ranks = [p for p in found if p.rank is not None]
        self.assertEqual([p.rank for p in ranks], list(range(8)))
        self.assertEqual([p.node for p in ranks], ["n1", "n1", "n2", "n2", "n3", "n3", "n4", "n4"])
        ranks[5].signal(signal.SIGKILL)
        fields = self.cluster.wait_job(job, timeout=120)
        self.assertEqual(fields["JobState"], "FAILED")
        # srun returns the highest code, and the ranks it terminated (143) hide the killed one (137).
        self.assertIn(fields["ExitCode"], ("137:0", "143:0"))
        self.assertEqual([p for p in self.cluster.processes("sleep") if p.rank is not None], [])

    def _sleeper(self):
        script = self.work("sleeper") / "sleeper.sh"
        script.write_text("#!/bin/bash\nsrun --kill-on-bad-exit=1 --wait=60 sleep 600\n")
        return script


if __name__ == "__main__":
    main()
