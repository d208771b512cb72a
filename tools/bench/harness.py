"""What the cases of tools/bench/run share: inputs, starting ranks, reading results, the table."""
import array
import datetime
import json
import os
import random
import re
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import time
from pathlib import Path

FEATURES, HIDDEN, CLASSES = 784, 512, 10
SAMPLES = 8192
# Multiply-adds of one sample: all three layers forward, and their weight gradients; input gradients
# of all but the first. A multiply-add is two operations.
MACS = FEATURES * HIDDEN + HIDDEN * HIDDEN + HIDDEN * CLASSES
FLOPS_PER_SAMPLE = 2 * (3 * MACS - FEATURES * HIDDEN)
SHAPES = {
    "fc1.weight": [HIDDEN, FEATURES], "fc1.bias": [HIDDEN],
    "fc2.weight": [HIDDEN, HIDDEN], "fc2.bias": [HIDDEN],
    "fc3.weight": [CLASSES, HIDDEN], "fc3.bias": [CLASSES],
}
JOB = """# proto-file: proto/job.proto
# proto-message: gaccd.proto.Job
name: "bench"
model {{
  layer {{ name: "fc1" linear {{ in: 784 out: 512 }} }}
  layer {{ name: "relu1" relu {{}} }}
  layer {{ name: "fc2" linear {{ in: 512 out: 512 }} }}
  layer {{ name: "relu2" relu {{}} }}
  layer {{ name: "fc3" linear {{ in: 512 out: 10 }} }}
  loss {{ softmax_cross_entropy {{}} }}
}}
data {{
  train {{ npy {{ features: "{features}" targets: "{labels}" classes: 10 }} }}
  shuffle: false
}}
batch {{ target: {target} micro: {micro} last_cycle: DROP }}
optimizer {{ lr: 0.01 sgd {{}} }}
epochs: 1000000
max_updates: {updates}
log_every: 1000000
"""


class BenchError(Exception):
    """A run that failed; the message says which."""


def first_existing(paths):
    return next((path for path in paths if path and os.access(path, os.X_OK)), None)


class Inputs:
    """The data, the first weights and the job files, the same for gaccd and the peers."""

    def __init__(self, folder):
        self.folder = Path(folder)
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        rng = random.Random(1)
        values = array.array("f", (rng.random() * 2 - 1 for _ in range(SAMPLES * FEATURES)))
        self.features = self.npy("features.npy", "<f4", [SAMPLES, FEATURES], values)
        classes = array.array("q", (rng.randrange(CLASSES) for _ in range(SAMPLES)))
        self.labels = self.npy("labels.npy", "<i8", [SAMPLES], classes)
        self.weights = self._safetensors("weights.safetensors", rng)
        self.runs = 0

    def npy(self, name, dtype, shape, values):
        dims = ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "")
        header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': ({dims}), }}"
        header += " " * (-(len(header) + 11) % 64) + "\n"
        path = self.folder / name
        with open(path, "wb") as file:
            file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
            values.tofile(file)
        return path

    def _safetensors(self, name, rng):
        header, blob = {}, b""
        for tensor, shape in SHAPES.items():
            count = shape[0] * (shape[1] if len(shape) == 2 else 1)
            bound = SHAPES[tensor.replace("bias", "weight")][1] ** -0.5
            values = array.array("f", (rng.uniform(-bound, bound) for _ in range(count)))
            begin = len(blob)
            blob += values.tobytes()
            header[tensor] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, len(blob)]}
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        path = self.folder / name
        path.write_bytes(struct.pack("<Q", len(text)) + text + blob)
        return path

    def job(self, target, micro, updates):
        path = self.folder / f"job-{target}-{micro}-{updates}.txtpb"
        path.write_text(JOB.format(features=self.features, labels=self.labels, target=target,
                                   micro=micro, updates=updates))
        return path

    def run_dir(self):
        self.runs += 1
        return self.folder / f"run-{self.runs}"


# Before other work, but by the ordinary scheduler: a real-time class changes how the threads of a
# rank take turns, and gloo's by a third. The kernel weighs sessions first, then their processes.
PRIORITY = ["sh", "-c", 'echo -20 >/proc/self/autogroup; exec nice -n -20 "$@"', "sh"]
prefix = []  # put before every command


def cores():
    return len(os.sched_getaffinity(0))


def call(commands, seconds, environments=None):
    """Runs the commands side by side; the stdout of the first. All end with the slowest or the
    deadline; one that fails is a BenchError."""
    processes = []
    for index, command in enumerate(commands):
        env = dict(os.environ, **(environments[index] if environments else {}))
        processes.append(subprocess.Popen(
            [str(part) for part in prefix + command], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, env=env, start_new_session=True))
    deadline = time.monotonic() + seconds
    outputs = []
    try:
        for process in processes:
            outputs.append(process.communicate(timeout=max(0.1, deadline - time.monotonic())))
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"{commands[0][0]} took longer than {seconds} s") from error
    finally:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    for process, (_, errors), command in zip(processes, outputs, commands):
        if process.returncode != 0:
            tail = "\n".join(errors.strip().splitlines()[-8:])
            raise BenchError(f"{command[0]} ended with {process.returncode}:\n{tail}")
    return outputs[0][0]


def mpirun(ranks, command, seconds=300):
    launch = ["mpirun", "-n", ranks]
    if os.geteuid() == 0:
        launch.append("--allow-run-as-root")
    if ranks <= cores():
        launch += ["--bind-to", "core"]
    else:
        launch += ["--oversubscribe", "--bind-to", "none"]
    return call([launch + command], seconds, [{"OMPI_MCA_mpi_yield_when_idle": "1"}])


def unix_seconds(stamp):
    return datetime.datetime.fromisoformat(stamp.replace("Z", "+00:00")).timestamp()


class Run:
    """The step events of one gaccd run."""

    def __init__(self, run_dir, target, warmup):
        found = sorted(Path(run_dir).glob("**/events.jsonl"))
        if not found:
            raise BenchError(f"no events.jsonl below {run_dir}")
        events = [json.loads(line) for line in found[-1].read_text().splitlines()]
        steps = [event for event in events if event["ev"] == "step" and event["samples"] == target]
        if len(steps) < warmup + 2:
            raise BenchError(f"{found[-1]}: {len(steps)} updates of {target} samples")
        self.times = [unix_seconds(event["ts"]) for event in steps]
        saves = [unix_seconds(event["ts"]) for event in events if event["ev"] == "save"]
        self.saves = [ts for ts in saves if ts < self.times[-1] - 2]  # not the one at the end
        self.first_loss, self.loss = steps[0]["loss"], steps[-1]["loss"]
        gaps = [b - a for a, b in zip(self.times[warmup:], self.times[warmup + 1 :])]
        # From line to line: logging and everything between two updates is in it.
        self.update_s = statistics.median(gaps)
        self.mean_s = statistics.fmean(gaps)
        self.phases = {key: statistics.median(event[key] for event in steps[warmup:])
                       for key in ("data_s", "fwd_bwd_s", "reduce_s", "opt_s", "dur_s")}


def train(gaccd, inputs, ranks, target, micro, updates, warmup=10, weights=True, flags=()):
    """One run of gaccd over MPI. Returns its Run."""
    run_dir = inputs.run_dir()
    command = [gaccd, "train", f"--job={inputs.job(target, micro, warmup + updates)}",
               f"--run-dir={run_dir}"]
    if weights:
        command.append(f"--init-weights={inputs.weights}")
    mpirun(ranks, command + list(flags))
    run = Run(run_dir, target, warmup)
    shutil.rmtree(run_dir)
    return run


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def torch_ddp(python, inputs, ranks, micro, k, updates, warmup=10):
    """One run of the PyTorch peer. Returns what its rank 0 printed, as a dictionary."""
    return torch_ranks(python, ranks, "ddp_mlp.py", [
        f"--features={inputs.features}", f"--labels={inputs.labels}", f"--weights={inputs.weights}",
        f"--micro={micro}", f"--k={k}", f"--updates={updates}", f"--warmup={warmup}"])


def torch_ranks(python, ranks, script, flags):
    """What rank 0 of a peer with several processes printed."""
    command = [python, Path(__file__).parent / "peers" / script, *flags]
    port = str(free_port())
    environments = [{"RANK": str(rank), "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1",
                     "MASTER_PORT": port, "GLOO_SOCKET_IFNAME": "lo"} for rank in range(ranks)]
    return json.loads(call([command] * ranks, 300, environments).splitlines()[-1])


def torch_version(python):
    try:
        output = call([[python, "-c", "import torch; print(torch.__version__)"]], 60)
    except (BenchError, OSError):
        return None
    return re.sub(r"\s", "", output)


def has_module(python, name):
    return subprocess.run([python, "-c", f"import importlib.util as u; assert u.find_spec('{name}')"], check=False,
                          capture_output=True).returncode == 0


class Table:
    """Rows `case, ours, peer, ratio, spread, wanted`, printed as they come and as Markdown."""

    HEAD = ("case", "ours", "peer", "ratio", "spread", "wanted")

    def __init__(self):
        self.rows = [self.HEAD]

    def add(self, case, ours, peer, ratios, wanted=""):
        """`ratios`: one per pair of runs; the larger, the better for us."""
        ratio = spread = "-"
        if ratios:
            ratio = f"{statistics.median(ratios):.2f}"
            spread = f"{min(ratios):.2f}..{max(ratios):.2f}"
        self.note(case, ours, peer, ratio, spread, wanted)

    def note(self, *row):
        self.rows.append(tuple(str(cell) for cell in row) + ("",) * (len(self.HEAD) - len(row)))
        print("  " + " | ".join(self.rows[-1]), flush=True)

    def markdown(self):
        lines = ["| " + " | ".join(row) + " |" for row in self.rows]
        lines.insert(1, "|" + "---|" * len(self.HEAD))
        return "\n".join(lines)


def machine():
    model = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo", encoding="utf-8")
                  if line.startswith("model name")), "unknown CPU")
    load = os.getloadavg()[0]
    return (f"{model}, {cores()} cores, Linux {os.uname().release}, load {load:.2f} before, "
            f"{datetime.date.today().isoformat()}")
