"""Random models of PyTorch, exported and compared with PyTorch: graph_fuzz.py GACCD [--seed=1] [--count=60]

Each is a program of random_programs.py, drawn by its own seed. gaccd.verify compares its output, loss and gradients
with PyTorch; one in 8 is trained in 3 updates on 1 and 3 ranks, one in 8 computes a gradient in bf16 where the CPU has
it. What fails is made as short as possible and printed; points where the gradient is not defined are left out. The exit
code is 1 if something failed. Needs what graph_export_test.py needs, else it is skipped: exit code 77.
"""
import argparse
import collections
import copy
import dataclasses
import os
import re
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path

from exporter import open_exporter
from launch import run

NOISE, STILL = 1e-9, 1e-4  # of values in double precision; share of gradients
RATE, UPDATES, BATCH = 0.05, 3, 7
TRAINED_SHARE, MIXED_SHARE = 8, 8  # one of so many
RANKS = (1, 3)
FINE, REFUSED, LEFT_OUT = "fine", "refused", "left out"  # all others are failures


def outcome_of(program, folder, everything=False):
    """(kind, message). everything: trains it and computes it in bf16, too."""
    try:
        model = program.model()
        if why := unusable(program, model):
            return LEFT_OUT, why
        path, example = folder / "model", program.example(2 + program.seed % 2)
        example = example if len(example) > 1 else next(iter(example.values()))
        try:
            gaccd.export(model, example, path)
        except gaccd.ExportError as error:
            return ("poor refusal" if "does not know" in str(error) else REFUSED), str(error)
        try:
            found = gaccd.verify(model, path, gaccd=GACCD)
        except gaccd.ExportError as error:
            return LEFT_OUT, str(error)
        if any(not one.ok and one.pytorch <= compare.MOST for one in found.results):  # others are 0 but for rounding
            return (LEFT_OUT, "a kink or tie") if at_kink(program, model) else ("differs", str(found))
        if (everything or program.seed % TRAINED_SHARE == 0) and (why := trains_otherwise(program, model, path)):
            return (LEFT_OUT, "a kink or tie") if at_kink(program, model) else ("trains otherwise", why)
        if MIXED and (everything or program.seed % MIXED_SHARE == 1):
            job(program, model, path, 1)
            run(GACCD, "train", "--job=job.txtpb", "--device=cpu", "--precision=bf16", cwd=folder)
    except gaccd.GaccdError as error:
        return "rejected by gaccd", str(error)
    except AssertionError as error:
        return "training fails", str(error)
    except Exception:  # of any kind: an error of the exporter
        return "error", traceback.format_exc()
    return FINE, ""


def gradients(program, model, seed, noise=0.0):
    torch.manual_seed(seed)
    given = {name: one.double() if one.is_floating_point() else one for name, one in program.example(BATCH).items()}
    judged = copy.deepcopy(model).double()
    judged.noise = noise
    y = judged(**given)
    torch.manual_seed(seed)
    (y.double() * torch.randn(y.shape).double()).sum().backward()
    found = [one.grad.flatten() for one in judged.parameters() if one.grad is not None]
    return torch.cat([y.detach().flatten(), *found]) if found else torch.zeros(0)


def unusable(program, model):
    try:
        found = gradients(program, model, 1)
    except Exception as error:  # of many kinds, by the program
        return f"fails in PyTorch: {error}"
    return "no gradients" if not len(found) else "" if found.isfinite().all() else "not finite"


def at_kink(program, model):
    """Whether values that differ by rounding have other gradients."""
    for seed in range(1, 6):
        exact, moved = (gradients(program, model, seed, noise) for noise in (0.0, NOISE))
        if not float((moved - exact).norm()) <= STILL * float(exact.norm()):
            return True
    return False


def job(program, model, path, updates):
    """Writes a job, and its data: the inputs, and targets or labels."""
    graph = (path / "graph.txtpb").read_text()
    weights = compare.load_file(path / "weights.safetensors")
    inputs = samples.fit_inputs(model, samples.find_inputs(graph, weights), BATCH, {})
    torch.manual_seed(program.seed)
    tensors = samples.draw(inputs, BATCH)
    labels, classes = compare._Compared(model, str(path), inputs, graph, {}, {}, BATCH, GACCD, False)._labels(tensors)
    samples.save_arrays(str(path.parent), inputs, tensors, labels)
    data = samples.data_text(inputs, labels, classes)
    loss = "softmax_cross_entropy" if classes else "mean_squared_error"
    (path.parent / "job.txtpb").write_text(
        f'name: "fuzz"\nmodel {{ graph {{ path: "model" }} loss {{ {loss} {{}} }} }}\n'
        f"data {{ train {{ {data} }} shuffle: false }}\nbatch {{ target: {BATCH} micro: 2 }}\n"
        f"optimizer {{ lr: {RATE} sgd {{ momentum: 0.9 }} }}\nepochs: {updates}\n")
    return inputs, tensors, labels


def trains_otherwise(program, model, path):
    """The weights that gaccd trains in other ways than PyTorch; "": none."""
    inputs, tensors, labels = job(program, model, path, UPDATES)
    exact, single = (trained_in_pytorch(model, kind, inputs, tensors, labels)
                     for kind in (torch.float64, torch.float32))
    if any(not bool(one.isfinite().all()) for one in exact.values()):
        return ""
    whole = sum(float((exact[name] - value).norm()) ** 2 for name, value in model.state_dict().items()) ** 0.5
    for ranks in RANKS:
        flags = [f"--local-ranks={ranks}"] if ranks > 1 else []
        run(GACCD, "train", *flags, "--job=job.txtpb", "--device=cpu", "--save-weights=trained", cwd=path.parent)
        found = compare.load_file(path.parent / "trained")
        for name, value in exact.items():
            error, own = (float((one[name].double() - value).norm()) for one in (found, single))
            if not error <= max(20 * own, 1e-3 * float((value - model.state_dict()[name]).norm()), 1e-5 * whole, 1e-7):
                return f"{name} on {ranks} ranks: {error:.3g} from PyTorch, whose single precision is {own:.3g} off"
    return ""


def trained_in_pytorch(model, kind, inputs, tensors, labels):
    trained = copy.deepcopy(model).to(kind).train()
    optimizer = torch.optim.SGD([one for one in trained.parameters() if one.requires_grad], lr=RATE, momentum=0.9)
    given = [one.to(kind) if one.is_floating_point() else one for one in tensors]
    for _ in range(UPDATES):
        optimizer.zero_grad()
        y = samples.call_model(trained, inputs, given, {})
        if labels.is_floating_point():
            torch.nn.functional.mse_loss(y, labels.to(kind)).backward()
        else:
            torch.nn.functional.cross_entropy(y.flatten(0, -2), labels.flatten()).backward()
        optimizer.step()
    return {name: value.double() for name, value in trained.state_dict().items()}


def shortened(program, kind, folder):
    """The shortest program that fails in the same way: without lines, in whose place are former values."""
    def fails(other):
        return outcome_of(other, folder, kind == "trains otherwise")[0] == kind

    def tried(known):
        lines = list(known.lines)
        for place, name in reversed(list(enumerate(lines))):
            short = dataclasses.replace(known, lines={one: known.lines[one] for one in lines[:place + 1]},
                                        parts={**known.parts, "end": "nn.LazyLinear(2)"},
                                        result=f"m.end({name}.flatten(1))")
            yield short.without_unused()
            for other in (*reversed(lines[:place]), *known.inputs):
                def put(text, name=name, other=other):
                    return re.sub(rf"\b{name}\b", other, text)
                others = {one: put(text) for one, text in known.lines.items() if one != name}
                yield dataclasses.replace(known, lines=others, result=put(known.result)).without_unused()
    left = True
    while left:
        left = next((one for one in tried(program) if one.size() < program.size() and fails(one)), None)
        program = left or program
    return program


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gaccd")
    parser.add_argument("--seed", type=int, default=1, help="of the first program; each has the next")
    parser.add_argument("--count", type=int, default=60, help="programs")
    parser.add_argument("--seconds", type=float, default=0, help="stop after so many, whatever the count; 0: never")
    parser.add_argument("--only", type=int, help="the program of this seed")
    parser.add_argument("--refusals", action="store_true", help="print how often each operation was refused")
    parser.add_argument("--verbose", action="store_true", help="print the result of each program")
    args = parser.parse_args()
    end = time.monotonic() + (args.seconds or 1e9)
    counts, refusals, failed = collections.Counter(), collections.Counter(), False
    first, count = (args.seed, args.count) if args.only is None else (args.only, 1)
    for seed in range(first, first + count):
        if time.monotonic() > end:
            break
        program = random_programs.draw(seed)
        with tempfile.TemporaryDirectory() as folder:
            kind, message = outcome_of(program, Path(folder))
            if kind not in (FINE, REFUSED, LEFT_OUT):
                failed = True
                program = shortened(program, kind, Path(folder))
                message = outcome_of(program, Path(folder), kind == "trains otherwise")[1]
                print(f"--- {kind}: --only={seed}\n{program}\n{message}", flush=True)
        counts[kind] += 1
        if args.verbose:
            print(seed, kind, f"{time.process_time():.1f} s", flush=True)
        if kind in (REFUSED, LEFT_OUT):
            refusals[f"{kind}: {re.sub(r'; it is called at.*|; near .*|[0-9]+', '', message)[:150]}"] += 1
        if args.only is not None:
            print(program, kind, message, sep="\n")
    if args.refusals:
        print(*(f"{count:5} {text}" for text, count in refusals.most_common()), sep="\n")
    print(", ".join(f"{count} {kind}" for kind, count in counts.most_common()))
    return failed


if __name__ == "__main__":
    gaccd = open_exporter(__doc__)
    warnings.simplefilter("ignore")
    import gaccd.verify_inputs as samples
    import gaccd.verify_model as compare
    import random_programs
    import torch
    GACCD = os.path.abspath(sys.argv[1])
    MIXED = "avx512_bf16" in Path("/proc/cpuinfo").read_text()
    sys.exit(main())
