"""Case n of tools/bench/run: public models through gaccd.export against PyTorch, and against the same architecture of
gaccd's own where there is one."""
import re
import shutil
import statistics
from dataclasses import dataclass
from pathlib import Path

import harness
import model_cases


@dataclass
class Model:
    name: str
    micro: int
    source: str  # of the job
    built_in: str  # the same model as one of gaccd's own; "": none
    wanted: str


TOKENS = 'tokens { tokens: "tokens.npy" labels: "labels.npy" vocabulary: '
IMAGES = 'npy { features: "features.npy" targets: "labels.npy" classes: 10 }'
MODELS = (
    Model("gpt", 4, TOKENS + "65 }", model_cases.MODELS[0].architecture, ">= 1.3"),
    Model("bert", 16, TOKENS + "8192 classes: 2 }", model_cases.MODELS[1].architecture, ">= 1.3"),
    Model("llama", 4, TOKENS + "65 }", "", ">= 1.3"),
    Model("resnet18", 16, IMAGES, "resnet { depth: 18 classes: 10 }", ">= 1.1"),
    Model("convnext", 16, IMAGES, "", ">= 1.1"),
    Model("vit", 32, IMAGES, model_cases.IMAGES[0].architecture, ">= 1.1"),
    Model("mixer", 16, IMAGES, "", ">= 1.0"),
    Model("lstm", 32, IMAGES, "", ">= 1.0"),
)
UPDATES = 20


class Exported:
    """One model, exported, with its samples."""

    def __init__(self, inputs, gaccd, python, model):
        self.inputs, self.gaccd, self.model = inputs, gaccd, model
        self.folder = inputs.folder / f"exported-{model.name}"
        self.folder.mkdir()
        self.command = [python, Path(__file__).parent / "peers" / "exported.py", f"--model={model.name}",
                        f"--folder={self.folder}"]
        harness.call([[*self.command, "--export"]], 300)

    def ours(self, architecture='graph { path: "model" }'):
        """Seconds of an update, the last loss, bytes."""
        model = self.model
        job = self.folder / "job.txtpb"
        job.write_text(model_cases.JOB.format(architecture=architecture, source=model.source, target=model.micro,
                                              micro=model.micro, lr=model_cases.LR, updates=3 + UPDATES))
        run_dir = self.inputs.run_dir()
        output = harness.mpirun(1, [self.gaccd, "train", f"--job={job}", f"--run-dir={run_dir}", "--device=cpu",
                                    "--save-every-seconds=0"], 600)
        run = harness.Run(run_dir, model.micro, 3)
        shutil.rmtree(run_dir)
        return run.update_s, run.loss, float(re.search(r"measured ([\d.]+) MB", output).group(1)) * 1e6

    def peer(self, command):
        line = model_cases.peer(command, [])
        return line["update_s"], line["loss"], line["peak_bytes"]


def exported(table, inputs, gaccd, python, pairs):
    for model in MODELS:
        own = Exported(inputs, gaccd, python, model)
        flags = [f"--micro={model.micro}", f"--lr={model_cases.LR}", f"--updates={UPDATES}"]
        name, command = model_cases.fastest([("PyTorch", own.command + flags),
                                             ("PyTorch compiled", own.command + flags + ["--compile"])], own.peer)
        sides = model_cases.in_turn(pairs, own.ours, lambda own=own, c=command: own.peer(c))
        case = f"n exported {model.name}, 1 rank x {model.micro}"
        model_cases.add_rate(table, case, "samples", model.micro, sides[0], name, sides[1], model.wanted)
        memory = [statistics.median(result[2] for result in side) for side in sides]
        table.add(f"{case}, memory", f"{memory[0] / 1e6:.0f} MB", f"{memory[1] / 1e6:.0f} MB {name}",
                  [b[2] / a[2] for a, b in zip(*sides)], "> 1")
        if model.built_in:
            sides = model_cases.in_turn(pairs, own.ours, lambda own=own, m=model: own.ours(m.built_in))
            model_cases.add_rate(table, case, "samples", model.micro, sides[0], "built-in", sides[1], ">= 0.95")
        shutil.rmtree(own.folder)
