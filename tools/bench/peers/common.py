"""What the peers of the model benchmarks share: flags, the weights file, the line they print."""
import argparse
import json

import numpy as np


def parse_flags(description, networks, precisions):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--model", required=True, choices=networks)
    parser.add_argument("--inputs", required=True, help="NPY: features or tokens")
    parser.add_argument("--labels", required=True, help="NPY")
    parser.add_argument("--weights", required=True, help="safetensors with the first weights")
    parser.add_argument("--layers", type=int, default=0)
    parser.add_argument("--heads", type=int, default=0)
    parser.add_argument("--micro", type=int, required=True)
    parser.add_argument("--k", type=int, default=1)
    parser.add_argument("--lr", type=float, required=True)
    parser.add_argument("--warmup", type=int, default=3, help="updates not counted")
    parser.add_argument("--updates", type=int, required=True, help="updates measured")
    parser.add_argument("--precision", choices=precisions, default="f32")
    parser.add_argument("--compile", action="store_true", help="torch.compile the loss")
    return parser.parse_args()


def read_safetensors(path):
    """The arrays of fp32 values of a safetensors file, by name."""
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        blob = file.read()
    arrays = {}
    for name, entry in header.items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            begin, end = entry["data_offsets"]
            values = np.frombuffer(blob[begin:end], dtype="<f4")
            arrays[name] = values.reshape(entry["shape"]).copy()
    return arrays


def read_model_weights(path):
    """The same, GPT-2's Conv1D as a Linear, which the peers compute faster."""
    return {name: np.ascontiguousarray(value.T)
            if ".c_" in name and name.endswith(".weight") else value
            for name, value in read_safetensors(path).items()}


def peak_bytes():
    """Resident memory at its most, without the pages of programs and libraries, as gaccd counts."""
    with open("/proc/self/status", encoding="utf-8") as file:
        status = dict(line.split(":", 1) for line in file)
    most, of_files = (int(status[key].split()[0]) for key in ("VmHWM", "RssFile"))  # kB
    return 1024 * (most - of_files)


def print_result(version, durations, warmup, loss):
    measured = sorted(durations[warmup:])
    print(json.dumps({"version": version, "update_s": measured[len(measured) // 2], "loss": loss,
                      "peak_bytes": peak_bytes()}))
