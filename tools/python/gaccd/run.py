"""Access to a run by its folder."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Iterator, Sequence, Union

PathLike = Union[str, "os.PathLike[str]"]
END_STATES = ("done", "failed")
NOT_REQUEUED = (93, 130)  # exit codes: the file STOP, Ctrl-C twice
NO_PROGRAM = 127  # exit code of a shell
LAUNCHERS = ("SLURM_", "OMPI_COMM_", "PMIX_", "PMI_")  # variables of a job or rank; OMPI_MCA_ are settings


class GaccdError(Exception):
    """gaccd or SLURM failed; the message is its output."""

    def __init__(self, command: Sequence[str], code: int, said: str) -> None:
        super().__init__(said.strip() or f"{' '.join(command)}: exit {code}")
        self.code = code
        self._made_of = (list(command), code, said)

    def __reduce__(self) -> tuple[Any, ...]:
        """Otherwise a pool of processes ends with a TypeError in place of this error."""
        return type(self), self._made_of


class RunFailed(Exception):
    """A run ended before it was complete; see `status`."""

    def __init__(self, status: dict[str, Any]) -> None:
        super().__init__(f"{status['folder']}: {status['phase']}, {status.get('reason') or 'no reason is known'}")
        self.status = status

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.status,)


def call(command: Sequence[str], codes: Sequence[int] = (0,), cwd: PathLike | None = None,
         show_warnings: bool = False, alone: bool = False) -> str:
    """Returns the standard output of a program; GaccdError if its exit code is not in `codes`. show_warnings: copies
    what it wrote to standard error to this program's. alone: as one process, even in a job of SLURM or below mpirun."""
    program = shutil.which(command[0])
    if program is None:
        raise GaccdError(command, NO_PROGRAM,
                         f"expected the program {command[0]!r} on the PATH or as a path to it (argument gaccd=), "
                         f"found none on {socket.gethostname()}")
    # A relative path starts at this program's folder, not at `cwd`. Without surrogateescape a folder with other letters
    # than ASCII could not be read in the locale C.
    env = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)} if alone else None
    done = subprocess.run([os.path.abspath(program), *command[1:]], cwd=cwd, env=env, text=True, check=False,
                          errors="surrogateescape", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode not in codes:
        raise GaccdError(command, done.returncode, done.stderr)
    if show_warnings:
        sys.stderr.write(done.stderr)
    return done.stdout


def json_lines(text: str) -> Iterator[dict[str, Any]]:
    """The objects of a text with one per line. str.splitlines() would also cut at U+2028 and others in their texts."""
    return (json.loads(line) for line in text.split("\n") if line)


class Run:
    """Reads the files of a run folder with the verbs of gaccd, which query SLURM if the files are not sufficient."""

    def __init__(self, folder: PathLike, gaccd: str = "gaccd") -> None:
        self.folder = Path(folder).absolute()
        self._gaccd = gaccd

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r})"

    @property
    def jobs(self) -> list[str]:
        """The job ids of the newest submission; several for a chain."""
        found: str = self.status().get("submitted_jobs", "")
        return found.split(",") if found else []

    def status(self) -> dict[str, Any]:
        """The output of `gaccd status` (see gaccd help status); unknown values are absent, empty or 0."""
        text = call([self._gaccd, "status", "--format=json", str(self.folder)], codes=(0, 1, 2))
        status: dict[str, Any] = json.loads(text)
        return status

    def state(self) -> str:
        """submitted, starting, running, stale, stopped, done or failed."""
        phase: str = self.status()["phase"]
        return phase

    def ended(self) -> bool:
        """Whether it has ended and will not be requeued."""
        status = self.status()
        if status.get("gone_in_slurm"):
            return True
        held = any((self.folder / name).exists() for name in ("STOP", "HOLD"))
        local = status.get("job", "").startswith("local-")  # without SLURM nothing starts it again
        final = held or local or status.get("exit") in NOT_REQUEUED
        return status["phase"] in END_STATES or (status["phase"] == "stopped" and final)

    def wait(self, timeout: float | None = None, poll: float = 10.0) -> str:
        """Waits until it has ended, including requeues; returns its state. TimeoutError after `timeout` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self.ended():
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"{self.folder} is {self.state()} after {timeout} s")
            time.sleep(poll if deadline is None else max(0.0, min(poll, deadline - time.monotonic())))
        return self.state()

    def result(self, timeout: float | None = None, poll: float = 10.0) -> dict[str, Any]:
        """Waits until the run is complete and returns its status. RunFailed if it ended otherwise."""
        if self.wait(timeout, poll) != "done":
            raise RunFailed(self.status())
        return self.status()

    def logs(self, *flags: str) -> str:
        """The text logs of all ranks and attempts, by time; flags: gaccd help logs."""
        return call([self._gaccd, "logs", *flags, str(self.folder)])

    def events(self) -> Iterator[dict[str, Any]]:
        """The events of all attempts, oldest first."""
        yield from json_lines(self.logs("--events"))

    def stop(self) -> None:
        """Makes the run save and exit; it is not started again."""
        call([self._gaccd, "stop", str(self.folder)])

    def cancel(self) -> None:
        """Cancels its jobs in SLURM."""
        if self.jobs:
            call(["scancel", *self.jobs])
