"""What the cluster tests share: where things are, and a main that keeps the logs of a failure.

CTest passes the places in the environment:
    GACCD               the gaccd binary
    GACCD_SOURCE        the root of the source tree
    GACCD_MPI_PROBE     the mpi_probe binary
    GACCD_TEST_TIMEOUT  seconds after which CTest kills the test; we stop earlier and print the logs
GACCD_CLUSTER_REQUIRED=1 turns "skipped, no cluster possible here" into a failure.
"""

import os
import signal
import sys
import unittest
from pathlib import Path

from cluster import Cluster, why_not_here

SKIPPED = 77  # CTest's SKIP_RETURN_CODE
SOURCE = Path(os.environ.get("GACCD_SOURCE", Path(__file__).resolve().parents[2]))
EXAMPLES = SOURCE / "slurm" / "examples"
FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")


def program(variable):
    """The path of a program we built, from the environment."""
    path = Path(os.environ.get(variable, ""))
    if not os.access(path, os.X_OK) or path.is_dir():
        raise unittest.TestCase.failureException(f"{variable}={path} is no program")
    return path


class ClusterTest(unittest.TestCase):
    """A test on the cluster of its process: self.cluster. Failures print the cluster's logs."""

    cluster = None

    def work(self, name):
        """A new folder that all nodes see."""
        folder = self.cluster.dir / "work" / name
        folder.mkdir()
        return folder


def _too_late(number, _frame):
    raise TimeoutError(f"stopped by {signal.Signals(number).name}, limit "
                       f"GACCD_TEST_TIMEOUT={os.environ.get('GACCD_TEST_TIMEOUT', 'none')}")


def main(nodes=4, needs=()):
    """Runs the tests of the calling module on one new cluster.

    needs: paths without which the tests are skipped, for example a data set.
    """
    reason = why_not_here() or next((f"{p} is not there" for p in needs if not Path(p).exists()), None)
    if reason:
        print(f"skipped: {reason}")
        sys.exit(1 if os.environ.get("GACCD_CLUSTER_REQUIRED") == "1" else SKIPPED)
    for number in (signal.SIGALRM, signal.SIGTERM):
        signal.signal(number, _too_late)
    signal.alarm(max(0, int(os.environ.get("GACCD_TEST_TIMEOUT", "0")) - 30))
    programs = [os.environ[v] for v in ("GACCD", "GACCD_MPI_PROBE") if os.environ.get(v)]
    cluster = Cluster(nodes=nodes, keep=[SOURCE, *(Path(p).parent for p in programs)]).start()
    ClusterTest.cluster = cluster
    passed = False
    try:
        suite = unittest.defaultTestLoader.loadTestsFromModule(sys.modules["__main__"])
        passed = unittest.TextTestRunner(verbosity=2, failfast=True).run(suite).wasSuccessful()
        if not passed:
            cluster.print_logs()
    finally:
        cluster.stop(keep_logs=not passed)
    sys.exit(0 if passed else 1)
