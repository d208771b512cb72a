"""Cases l and m of tools/bench/run: a model in stages, and a sharded optimiser, against others."""
import json
import shutil
import statistics

import harness
import model_cases

STEPS = 4  # micro-batches of an update


def ours(own, ranks, steps, flags):
    """Seconds of an update, and the loss of the first one."""
    run_dir, _ = own.run("f32", 3 + own.model.updates, [f"--init-weights={own.weights}", *flags],
                         steps=steps, ranks=ranks)
    run = harness.Run(run_dir, steps * own.model.micro, 3)
    events = next(run_dir.glob("attempts/0*/events.jsonl")).read_text().splitlines()
    first = next(event for event in map(json.loads, events) if event["ev"] == "step")
    shutil.rmtree(run_dir)
    return run.update_s, first["loss"]


def row(table, case, unit, count, sides, peer_name, wanted):
    rates = [f"{count / statistics.median(result[0] for result in side):,.0f} {unit}/s" for side in sides]
    table.add(case, rates[0], f"{rates[1]} {peer_name}",
              [b[0] / a[0] for a, b in zip(*sides)], wanted)
    print(f"    loss of the first update: {sides[0][0][1]:.6f}, peer {sides[1][0][1]:.6f}")


def pipelines(table, inputs, gaccd, python, pairs):
    model = model_cases.MODELS[0]
    own = model_cases.ModelInputs(inputs, gaccd, model)

    def theirs(schedule):
        line = harness.torch_ranks(python, 2, "pipeline.py",
                                   [*own.peer_flags(), f"--k={STEPS}", f"--precision={schedule}"])
        return line["update_s"], line["loss"]

    for mine, peer in (("GPIPE", "gpipe"), ("ONE_F_ONE_B", "1f1b"), ("ZERO_BUBBLE", "1f1b")):
        flags = ["--pipeline=2", f"--set=pipeline.schedule={mine}"]
        sides = model_cases.in_turn(pairs, lambda f=flags: ours(own, 2, STEPS, f), lambda p=peer: theirs(p))
        row(table, f"l gpt in 2 stages, {STEPS} x {model.micro}, {mine.lower()}", "tokens",
            STEPS * model.micro * model.length, sides, f"torch {peer}", ">= 1.2")


def sharding(table, inputs, gaccd, pairs):
    """4 ranks on whatever cores there are."""
    model = model_cases.MODELS[0]
    own = model_cases.ModelInputs(inputs, gaccd, model)
    sides = model_cases.in_turn(pairs, lambda: ours(own, 4, 4, ["--shard=optimizer"]),
                                lambda: ours(own, 4, 4, []))
    row(table, "m gpt, 4 ranks, shard optimizer", "tokens", 4 * model.micro * model.length, sides,
        "none", ">= 0.97")
