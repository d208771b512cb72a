"""Submission of runs."""

from __future__ import annotations

import os
from typing import Mapping, Sequence, Union

from .run import PathLike, Run, call, json_lines

Value = Union[str, int, float, bool]


def _text(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _sets(values: Mapping[str, str], target_batch: int | None) -> list[str]:
    if target_batch is not None and "batch.target" in values:
        raise TypeError(f"target_batch is {target_batch} and values['batch.target'] {values['batch.target']}, which are "
                        "the same; expected one of them")
    return [word for name, value in values.items() for word in ("--set", f"{name}={value}")]


def _listed(name: str, some: Sequence[Value]) -> str:
    """The values of a field in a sweep, of which gaccd makes a list at the commas."""
    if isinstance(some, str):
        raise TypeError(f"values['{name}']: expected a list, found the text {some!r}")
    texts = [_text(value) for value in some]
    for text in texts:
        if "," in text:
            raise ValueError(f"values['{name}']: expected values without a comma, found {text!r}")
    return ",".join(texts)


def _check_words(flags: Sequence[str], sbatch: Sequence[str]) -> None:
    for name, words in (("flags", flags), ("sbatch", sbatch)):
        if isinstance(words, str):
            raise TypeError(f"{name}: expected a list, found the text {words!r}")
    for word in (*flags, *sbatch):
        # gaccd reads -dry_run as --dry-run.
        if word.startswith("-") and word.split("=")[0].lstrip("-").replace("_", "-") in ("dry-run", "test-only"):
            raise ValueError(f"expected flags of a submission, found {word}, which submits nothing: see gaccd submit")


def _submit(job: PathLike, run: str, sets: Sequence[str], flags: Sequence[str], sbatch: Sequence[str],
            cwd: PathLike | None, gaccd: str, **options: Value | None) -> list[Run]:
    _check_words(flags, sbatch)
    command = [gaccd, "submit", "--format=json", f"--job={os.fspath(job)}", f"--run={run}"]
    command += [f"--{name.replace('_', '-')}={_text(value)}" for name, value in options.items() if value is not None]
    command += [*sets, *flags, "--", *sbatch]
    return [Run(one["folder"], gaccd) for one in json_lines(call(command, cwd=cwd, show_warnings=True))]


def submit(job: PathLike, run: str, *, nodes: int, target_batch: int | None = None, gpus_per_node: int | None = None,
           time: str | None = None, partition: str | None = None, account: str | None = None,
           container_image: str | None = None, chain: int | None = None, exclude_suspects: bool | None = None,
           values: Mapping[str, Value] | None = None, flags: Sequence[str] = (), sbatch: Sequence[str] = (),
           cwd: PathLike | None = None, gaccd: str = "gaccd") -> Run:
    """Plans and submits a training; its folder is runs/RUN below `cwd`.

    values: fields of the job by name, {"optimizer.lr": 0.1}. flags: additional flags of `gaccd train`; sbatch: of
    sbatch. Its warnings go to standard error. GaccdError if gaccd or SLURM reports an error.
    """
    sets = _sets({name: _text(value) for name, value in (values or {}).items()}, target_batch)
    (new,) = _submit(job, run, sets, flags, sbatch, cwd, gaccd, nodes=nodes, target_batch=target_batch,
                     gpus_per_node=gpus_per_node, time=time, partition=partition, account=account,
                     container_image=container_image, chain=chain, exclude_suspects=exclude_suspects)
    return new


def sweep(job: PathLike, run: str, *, nodes: int, values: Mapping[str, Sequence[Value]],
          target_batch: int | None = None, gpus_per_node: int | None = None, time: str | None = None,
          partition: str | None = None, account: str | None = None, flags: Sequence[str] = (),
          sbatch: Sequence[str] = (), cwd: PathLike | None = None, gaccd: str = "gaccd") -> list[Run]:
    """Submits all combinations of values, {"optimizer.lr": [0.1, 0.01]}, as a job array with one run each."""
    sets = _sets({name: _listed(name, some) for name, some in values.items()}, target_batch)
    return _submit(job, run, sets, flags, sbatch, cwd, gaccd, array=True, nodes=nodes, target_batch=target_batch,
                   gpus_per_node=gpus_per_node, time=time, partition=partition, account=account)
