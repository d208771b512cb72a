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


def _submit(job: PathLike, run: str, flags: Sequence[str], sbatch: Sequence[str], cwd: PathLike | None, gaccd: str,
            **options: Value | None) -> list[Run]:
    command = [gaccd, "submit", "--format=json", f"--job={os.fspath(job)}", f"--run={run}"]
    command += [f"--{name.replace('_', '-')}={_text(value)}" for name, value in options.items() if value is not None]
    command += [*flags, "--", *sbatch]
    return [Run(one["folder"], gaccd) for one in json_lines(call(command, cwd=cwd))]


def submit(job: PathLike, run: str, *, nodes: int, target_batch: int | None = None, gpus_per_node: int | None = None,
           time: str | None = None, partition: str | None = None, account: str | None = None,
           container_image: str | None = None, chain: int | None = None, exclude_suspects: bool | None = None,
           values: Mapping[str, Value] | None = None, flags: Sequence[str] = (), sbatch: Sequence[str] = (),
           cwd: PathLike | None = None, gaccd: str = "gaccd") -> Run:
    """Plans and submits a training; its folder is runs/RUN below `cwd`.

    values: fields of the job by name, {"optimizer.lr": 0.1}. flags: additional flags of `gaccd train`; sbatch: of
    sbatch. GaccdError if gaccd or SLURM reports an error.
    """
    sets = _sets({name: _text(value) for name, value in (values or {}).items()}, target_batch)
    (new,) = _submit(job, run, [*sets, *flags], sbatch, cwd, gaccd, nodes=nodes, target_batch=target_batch,
                     gpus_per_node=gpus_per_node, time=time, partition=partition, account=account,
                     container_image=container_image, chain=chain, exclude_suspects=exclude_suspects)
    return new


def sweep(job: PathLike, run: str, *, nodes: int, values: Mapping[str, Sequence[Value]],
          target_batch: int | None = None, gpus_per_node: int | None = None, time: str | None = None,
          partition: str | None = None, account: str | None = None, flags: Sequence[str] = (),
          sbatch: Sequence[str] = (), cwd: PathLike | None = None, gaccd: str = "gaccd") -> list[Run]:
    """Submits all combinations of values, {"optimizer.lr": [0.1, 0.01]}, as a job array with one run each."""
    sets = _sets({name: ",".join(map(_text, some)) for name, some in values.items()}, target_batch)
    return _submit(job, run, [*sets, *flags], sbatch, cwd, gaccd, array=True, nodes=nodes, target_batch=target_batch,
                   gpus_per_node=gpus_per_node, time=time, partition=partition, account=account)
