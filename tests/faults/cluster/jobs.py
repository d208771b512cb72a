"""Small trainings whose result shows what happened to them.

Two kinds. adamw_job() is an ordinary network with optimiser state and evaluations: its figures of
every update must come out the same to the last bit, however often it was interrupted.
ledger_job() counts: sample i has the feature vector e_i, the model is one weight per sample without
bias, and every weight moves towards its own target by the factor (1 - 2 lr / batch) each time its
sample is used. So the weights say how often every single sample was used, and two checkpoints say
which samples the updates between them took, and with which weight.
"""

import dataclasses
import math
import struct
from pathlib import Path

MODEL = """\
name: "faults"
model {
  layer { name: "fc1" linear { in: 784 out: 32 } }
  layer { name: "relu1" relu {} }
  layer { name: "fc2" linear { in: 32 out: 10 } }
  loss { mean_squared_error {} }
}
data {
  train { synthetic { samples: %(samples)d features: 784 outputs: 10 } }
  eval { synthetic { samples: %(eval_samples)d features: 784 outputs: 10 seed: 2 } }
}
batch { target: %(batch)d micro: 100 }
optimizer { lr: 0.002 adamw {} }
epochs: %(epochs)d
clip_norm: 10
log_every: 1000
"""

LEDGER = """\
name: "ledger"
model {
  layer { name: "w" linear { in: %(samples)d out: 1 bias: false } }
  loss { mean_squared_error {} }
}
data {
  train { npy { features: "%(folder)s/features.npy" targets: "%(folder)s/targets.npy" } }
}
batch { target: %(batch)d micro: %(micro)d }
optimizer { lr: %(lr)r sgd {} }
epochs: %(epochs)d
log_every: 1000
"""


@dataclasses.dataclass
class Job:
    path: Path
    samples: int
    batch: int
    epochs: int
    lr: float

    @property
    def updates_per_epoch(self):
        return math.ceil(self.samples / self.batch)

    @property
    def updates(self):
        return self.epochs * self.updates_per_epoch

    def batch_of(self, step):
        """Samples of update `step`, from 1: the last of an epoch takes what is left."""
        last = step % self.updates_per_epoch == 0
        return self.samples - self.batch * (self.updates_per_epoch - 1) if last else self.batch


def adamw_job(folder, samples=20_000, batch=1_000, epochs=8, eval_samples=8_000):
    path = Path(folder) / "adamw.txtpb"
    path.write_text(MODEL % locals())
    return Job(path, samples, batch, epochs, 0.002)


def ledger_job(folder, samples=512, batch=50, epochs=8, micro=7):
    """512 = 10 x 50 + 12: the last update of an epoch is smaller, and 50 does not divide."""
    folder = Path(folder)
    lr = 1.0  # every use takes 4 % off the distance to the target, 17 % in the smaller update
    identity = b"".join(struct.pack(f"<{samples}f", *(1.0 if i == j else 0.0 for j in range(samples)))
                        for i in range(samples))
    _write_npy(folder / "features.npy", (samples, samples), identity)
    # Far from all initial weights, which are below 1 / sqrt(512): every use shows.
    targets = struct.pack(f"<{samples}f", *(4.0 + i % 7 for i in range(samples)))
    _write_npy(folder / "targets.npy", (samples, 1), targets)
    path = folder / "ledger.txtpb"
    path.write_text(LEDGER % locals())
    return Job(path, samples, batch, epochs, lr)


def _write_npy(path, shape, data):
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + data)
