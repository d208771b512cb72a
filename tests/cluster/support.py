"""What the cluster tests share: where things are, and a main that keeps the logs of a failure.

CTest passes the places in the environment; by hand, build/release is the default:
    GACCD               the gaccd binary
    GACCD_SOURCE        the root of the source tree
    GACCD_MPI_PROBE     the mpi_probe binary
    GACCD_TEST_TIMEOUT  seconds after which CTest kills the test; we stop earlier and print the logs
GACCD_CLUSTER_REQUIRED=1 turns "skipped, no cluster possible here" into a failure.
"""

import json
import os
import signal
import sys
import time
import unittest
from pathlib import Path

from cluster import Cluster, why_not_here

SKIPPED = 77  # CTest's SKIP_RETURN_CODE
SOURCE = Path(os.environ.get("GACCD_SOURCE", Path(__file__).resolve().parents[2]))
EXAMPLES = SOURCE / "slurm" / "examples"
FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")


PROGRAMS = {"GACCD": "gaccd", "GACCD_MPI_PROBE": "tests/cluster/mpi_probe"}  # below the build folder


def program(variable):
    """The path of a program we built: from the environment, else from build/release."""
    path = Path(os.environ.get(variable) or SOURCE / "build" / "release" / PROGRAMS[variable])
    if not os.access(path, os.X_OK) or path.is_dir():
        raise unittest.TestCase.failureException(f"{variable}={path} is no program")
    return path


class ClusterTest(unittest.TestCase):
    """A test on the cluster of its process: self.cluster. Failures print the cluster's logs."""

    cluster = None

    def submit(self, script, *args, options=(), **env):
        """Submits one of slurm/examples; returns the Run with its job id and run folder."""
        folder = self.work(self.id().rsplit(".", 1)[-1])
        run_dir = folder / "the run"  # the space is on purpose
        job = self.cluster.sbatch(EXAMPLES / script, *args, options=options, cwd=folder,
                                  env={"GACCD": program("GACCD"), "GACCD_RUN_DIR": run_dir, **env})
        return Run(job, folder, run_dir)

    def wait_until(self, condition, timeout, what):
        """Polls; fails with `what` after `timeout` seconds. Returns what the condition returned."""
        deadline = time.monotonic() + timeout
        while not (value := condition()):
            self.assertLess(time.monotonic(), deadline, f"{what}: not within {timeout} s")
            time.sleep(0.2)
        return value

    def work(self, name):
        """A new folder that all nodes see."""
        folder = self.cluster.dir / "work" / name
        folder.mkdir()
        return folder


class Run:
    """The folder of one submitted run, as slurm/README.md and operations describe it."""

    def __init__(self, job, folder, run_dir):
        self.job = job
        self.folder = folder  # where it was submitted
        self.dir = run_dir
        self.attempt = run_dir / "attempts" / f"000-{job}"

    def events(self, kind):
        """The events of this kind so far, oldest first."""
        path = self.attempt / "events.jsonl"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        events = [json.loads(line) for line in lines if line.endswith("\n")]
        return [event for event in events if event["ev"] == kind]

    def ranks(self):
        """ranks.tsv: a list of dicts by column name."""
        lines = (self.attempt / "ranks.tsv").read_text().splitlines()
        names = lines[0].split("\t")
        return [dict(zip(names, line.split("\t"))) for line in lines[1:]]

    def status(self):
        return json.loads((self.dir / "STATUS.json").read_text())

    def text(self):
        """Everything the job and its ranks said, in one string."""
        files = [*self.folder.glob("slurm-*.out"), *self.attempt.glob("rank/*"),
                 *self.attempt.glob("log/r*")]
        return "\n".join(f.read_text(errors="replace") for f in files)


def _too_late(number, _frame):
    raise TimeoutError(f"stopped by {signal.Signals(number).name}, limit "
                       f"GACCD_TEST_TIMEOUT={os.environ.get('GACCD_TEST_TIMEOUT', 'none')}")


def main(nodes=4, needs=(), settings=None, disks=None):
    """Runs the tests of the calling module on a new cluster; arguments: parts of the names of some.

    needs: paths without which the tests are skipped, for example a data set. settings, disks: of
    Cluster.
    """
    reason = why_not_here() or next((f"{p} is not there" for p in needs if not Path(p).exists()), None)
    if reason:
        print(f"skipped: {reason}")
        sys.exit(1 if os.environ.get("GACCD_CLUSTER_REQUIRED") == "1" else SKIPPED)
    for number in (signal.SIGALRM, signal.SIGTERM):
        signal.signal(number, _too_late)
    signal.alarm(max(0, int(os.environ.get("GACCD_TEST_TIMEOUT", "0")) - 30))
    programs = [Path(os.environ[name]).parent for name in PROGRAMS if os.environ.get(name)]
    loader = unittest.TestLoader()
    loader.testNamePatterns = [f"*{name}*" for name in sys.argv[1:]] or None
    suite = loader.loadTestsFromModule(sys.modules["__main__"])

    cluster = Cluster(nodes=nodes, keep=[SOURCE, *programs], settings=settings, disks=disks).start()
    ClusterTest.cluster = cluster
    passed = False
    try:
        passed = unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful()
        if not passed:
            cluster.print_logs()
    finally:
        cluster.stop(keep_logs=not passed)
    sys.exit(0 if passed else 1)
