"""What the tests that start programs on a GPU share: is there one, ranks over MPI, safetensors."""
import array
import ctypes
import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

SKIPPED = 77  # CTest's SKIP_RETURN_CODE


def count_gpus():
    """(number of GPUs that the driver shows, the reason when there is none)."""
    driver = None
    for path in ("libcuda.so.1", "/usr/local/nvidia/lib64/libcuda.so.1"):
        try:
            driver = driver or ctypes.CDLL(path)
        except OSError:
            continue
    if driver is None:
        return 0, "no driver: libcuda.so.1 not found"
    count = ctypes.c_int(0)
    code = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    if code:
        return 0, f"the driver answers with error {code}"
    return count.value, "" if count.value else "the driver shows none"


def print_row(check, passed, expected, seen):
    """A row of the table of tools/gpu-check, on a line of its own."""
    result = "PASS" if passed else "FAIL"
    print("\nROW " + json.dumps([check, result, "", "", "", "", f"expected {expected}, seen {seen}"]),
          flush=True)


def main():
    """unittest.main(), or a loud skip."""
    _, reason = count_gpus()
    if reason:
        print(f"skipped: no GPU on this machine ({reason})")
        sys.exit(1 if os.environ.get("GACCD_GPU_REQUIRED") == "1" else SKIPPED)
    unittest.main(verbosity=2)


def read_safetensors(path):
    """name -> floats of a file of F32 tensors."""
    blob = Path(path).read_bytes()
    (length,) = struct.unpack_from("<Q", blob)
    header = json.loads(blob[8 : 8 + length])
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = (8 + length + offset for offset in entry["data_offsets"])
            tensors[name] = array.array("f", blob[begin:end])
    return tensors


def relative_difference(found, expected):
    """|found - expected| / |expected| over all tensors."""
    if sorted(found) != sorted(expected):
        return float("nan")
    difference = norm = 0.0
    for name, values in expected.items():
        if len(values) != len(found[name]):
            return float("nan")
        difference += sum((a - b) ** 2 for a, b in zip(found[name], values))
        norm += sum(b * b for b in values)
    return (difference / norm) ** 0.5


class Ranks:
    """Ranks of one program over MPI. Each notes its exit code; mpirun leaves survivors alone."""

    def __init__(self, ranks, command, environment=None):
        self.folder = tempfile.TemporaryDirectory(prefix="gaccd-gpu-test-")
        self.ranks = ranks
        notes = 'shift_to="$1"; shift; "$@"; echo $? >"$shift_to/$OMPI_COMM_WORLD_RANK"'
        launch = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none",
                  "--enable-recovery", "-n", str(ranks)]
        self.output_path = os.path.join(self.folder.name, "output")
        with open(self.output_path, "w", encoding="utf-8") as output:
            self.process = subprocess.Popen(
                launch + ["bash", "-c", notes, "bash", self.folder.name, *map(str, command)],
                stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
                env={**os.environ, "OMPI_MCA_mpi_yield_when_idle": "1", **(environment or {})})
        self.name = os.path.basename(str(command[0]))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            for rank in range(self.ranks):
                self.signal(rank, signal.SIGKILL)
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.folder.cleanup()

    def output(self):
        return Path(self.output_path).read_text(encoding="utf-8", errors="replace")

    def code(self, rank):
        """The exit code, None while the rank runs."""
        note = Path(self.folder.name, str(rank))
        text = note.read_text() if note.exists() else ""
        return int(text) if text.strip() else None

    def pid(self, rank):
        """Of the program itself, which runs below our shell; None when it is gone."""
        wanted = f"OMPI_COMM_WORLD_RANK={rank}".encode()
        note = self.folder.name.encode()
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if os.path.basename(words[0]) != self.name.encode():
                    continue
                parent = (entry / "stat").read_text().rsplit(")", 1)[1].split()[1]
                ours = note in Path("/proc", parent, "cmdline").read_bytes()
                if ours and wanted in (entry / "environ").read_bytes().split(b"\0"):
                    return int(entry.name)
            except OSError:  # it has just ended
                continue
        return None

    def signal(self, rank, number):
        pid = self.pid(rank)
        if pid is not None:
            os.kill(pid, number)
        return pid is not None

    def wait_for(self, condition, seconds, what):
        """Polls until the condition is true; AssertionError with the ranks' words after that."""
        deadline = time.monotonic() + seconds
        while not condition():
            over = self.process.poll() is not None and not condition()
            if over or time.monotonic() > deadline:
                when = "before the ranks ended" if over else f"within {seconds} s"
                raise AssertionError(f"{what}: not {when}; the ranks say:\n{self.output()}")
            time.sleep(0.05)
