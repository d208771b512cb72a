"""The samples of a rank."""

from __future__ import annotations

import json
import operator
import zlib
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import Any, Iterable, Iterator, Mapping, Sequence, Sized

from ..plan import Plan
from ..run import call

CHUNK_SAMPLES = 1 << 16  # per call of gaccd, unless one update has more
CHUNK_UPDATES = 1 << 10
IDENTITY_BITS = 18  # squares are exact as float64, also summed over 2^17 ranks


@dataclass(frozen=True)
class Update:
    """One update from the view of one rank."""

    number: int  # from 1, as in gaccd's events
    updates: int  # of the run
    epoch: int  # of its first sample, from 1
    epoch_end: bool  # whether it is the last update with samples of the epoch
    samples: int  # of all ranks
    rank: int
    world: int
    micro_batches: tuple[tuple[int, ...], ...]  # the non-empty ones of this rank: indices in the data set
    plan: Plan = field(repr=False)  # of this update: that of all, or of a smaller one
    identity: int  # equal on ranks whose data set size, batch, seed, order, length of the run and speeds are equal
    batches: Iterable[Any] = field(default=(), repr=False)  # the same, loaded
    owner: ExactBatches | None = field(default=None, repr=False)
    uneven: bool = False  # ranks have different speeds, so some may have no samples

    @property
    def rank_samples(self) -> int:
        return sum(map(len, self.micro_batches))

    def complete(self) -> None:
        """Marks the update as complete: state_dict() then continues after it. Called by accumulate()."""
        if self.owner is not None:
            self.owner.done = self.number


def all_even(plans: Sequence[Plan]) -> bool:
    """Whether in each plan all ranks have as many micro-batches."""
    return all(len({sum(size > 0 for size in rank.micro_batches) for rank in plan.ranks}) == 1 for plan in plans)


class ExactBatches:
    """A batch sampler: this rank's micro-batches of every update, the same as in gaccd.

    The order of samples is a function of seed and epoch, so it is the same for any world size. If an update has fewer
    samples than ranks, some ranks have no micro-batch; updates() includes that update.
    last_cycle: the remaining samples at the end of an epoch become one smaller update ("update"), are joined with the
    next epoch ("carry") or are not used ("drop"). max_updates: 0 for all. `done` is the number of complete updates;
    iteration begins after them.
    """

    def __init__(self, dataset: Sized | int, plan: Plan, rank: int, seed: int = 1, *, epochs: int = 1,
                 max_updates: int = 0, last_cycle: str = "update", shuffle: bool = True) -> None:
        if not isinstance(plan, Plan):
            raise TypeError(f"plan: expected the result of gaccd.plan(), found {plan!r}")
        self.plan, self.rank, self.done, self._ended = plan, rank, 0, False
        self._plans = {plan.effective_batch: plan}
        self._iterator: Iterator[Any] | None = None  # of updates(), if it was given one
        self._begun = self._least = 0  # the update that the last iterator began with, and that of the loop over updates()
        self._taken: int | None = 0  # updates whose micro-batches were loaded; None within an update
        self._size = size = len(dataset) if isinstance(dataset, Sized) else operator.index(dataset)
        self._identity = {"dataset_size": size, "batch": plan.effective_batch, "seed": seed, "shuffle": shuffle,
                          "last_cycle": last_cycle}
        run = json.dumps([self._identity, epochs, max_updates, plan.world, plan.speeds], default=int)
        self._checksum = zlib.crc32(run.encode()) % (1 << IDENTITY_BITS)
        self._command = [plan.gaccd, "samples", "--format=json", *plan.flags, f"--rank={rank}",
                         f"--dataset-size={size}", f"--seed={seed}", f"--epochs={epochs}",
                         f"--max-updates={max_updates}", f"--last-cycle={last_cycle}",
                         f"--set=data.shuffle={str(shuffle).lower()}"]
        load = max(one.samples for one in plan.ranks)
        self._chunk = max(1, min(CHUNK_UPDATES, CHUNK_SAMPLES // load))
        self._chunks: dict[int, list[Update]] = {}
        self.total = self.at(1).updates

    @cached_property
    def plans(self) -> list[Plan]:
        """Of all updates of the run: one for each number of samples."""
        smaller = self._size // self.plan.effective_batch + 1  # in the first epoch, if there is one
        for number in (1, min(smaller, self.total), self.total):
            self.at(number)
        return list(self._plans.values())

    @property
    def even(self) -> bool:
        """Whether in every update all ranks have as many micro-batches, as collectives within them need it."""
        return all_even(self.plans)

    def at(self, number: int) -> Update:
        """An update of the run, from 1."""
        if not 1 <= number <= getattr(self, "total", number):
            raise IndexError(f"expected an update from 1 to {self.total}, found {number}")
        chunk, place = divmod(number - 1, self._chunk)
        if chunk not in self._chunks:
            oldest = self.done // self._chunk
            self._chunks = {one: updates for one, updates in self._chunks.items() if one >= oldest}
            self._chunks[chunk] = self._ask(chunk * self._chunk + 1)
        return self._chunks[chunk][place]

    def _ask(self, first: int) -> list[Update]:
        text = call([*self._command, f"--first-update={first}", f"--updates={self._chunk}"])
        return [self._parse(json.loads(line)) for line in text.splitlines()]

    def _parse(self, line: Mapping[str, Any]) -> Update:
        samples = iter(line["samples"])
        micro_batches = tuple(tuple(islice(samples, size)) for size in line["micro_batches"] if size > 0)
        samples_of_all = line["update_samples"]
        if samples_of_all not in self._plans:
            self._plans[samples_of_all] = self.plan.for_samples(samples_of_all)
        return Update(line["update"], line["updates"], line["epoch"], line["epoch_end"], samples_of_all, line["rank"],
                      self.plan.world, micro_batches, self._plans[samples_of_all], self._checksum,
                      uneven=self.plan.speeds is not None)

    def _check_end(self) -> None:
        if self._ended and self.done == self.total:
            raise RuntimeError(f"all {self.total} updates are complete: epochs= has the number of epochs, of which one "
                               "loop over updates() takes all; other loops need another DataLoader")

    def __iter__(self) -> Iterator[list[int]]:
        self._check_end()
        self._begun = self.done + 1
        return self._micro_batches(self._begun)  # of now, not of the first next(), as a DataLoader calls it late

    def _micro_batches(self, first: int) -> Iterator[list[int]]:
        for number in range(first, self.total + 1):
            yield from (list(one) for one in self.at(number).micro_batches)

    def updates(self, loader: Iterable[Any]) -> Iterator[Update]:
        """The remaining updates of all epochs. RuntimeError for a second loop after the last one.

        loader: a DataLoader with this as its batch_sampler, or what yields the same.
        """
        if getattr(loader, "batch_sampler", self) is not self:
            raise ValueError("expected a DataLoader with this as its batch_sampler, found one of other samples")
        data = getattr(loader, "dataset", None)
        if isinstance(data, Sized) and len(data) != self._size:
            raise ValueError(f"expected a DataLoader of a data set of {self._size} samples, as ExactBatches was given, found "
                             f"{len(data)} (torch.utils.data.Subset makes a part of one)")
        if not getattr(loader, "in_order", True):
            raise ValueError("expected a DataLoader with in_order=True, found False: updates would have the samples of "
                             "others")
        self._check_end()
        batches = iter(loader)
        if batches is self._iterator and self._taken != self.done:
            raise ValueError(f"expected an iterator that begins with update {self.done + 1}, found one that another loop "
                             "has left within an update; a DataLoader can begin anew")
        self._least = 0 if self._taken == self.done else self.done + 1  # others are complete than were loaded: load_state_dict()
        self._iterator = batches if batches is loader else None
        for number in range(self.done + 1, self.total + 1):
            update = self.at(number)
            own = self._own(batches, update)
            yield replace(update, batches=own, owner=self)
            if self.done != number:
                raise RuntimeError(f"update {number} was left before it was complete: expected {number} complete "
                                   f"updates, found {self.done}")
            for _ in own:  # discards what the update did not consume, for example if it was skipped
                pass
        self._ended = True

    def _own(self, batches: Iterator[Any], update: Update) -> Iterator[Any]:
        self._taken = None
        for batch in islice(batches, len(update.micro_batches)):
            if 0 < self._begun < self._least:  # known once it has given a batch, as an iterator may call __iter__ late
                raise ValueError(f"expected an iterator that begins with update {self._least}, found one that began with update {self._begun}: "
                                 "load_state_dict() belongs before iter()")
            yield batch
        self._taken = update.number

    def state_dict(self) -> dict[str, Any]:
        """The state for a checkpoint, from which the run continues on any number of ranks."""
        return {"updates": self.done, "samples": self.at(self.done).samples if self.done else 0, **self._identity}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """ValueError for the state of another run: another data set size, batch, seed or order, or a run length for
        which its last update had another number of samples, so that some would be lost or used twice."""
        if missing := [name for name in ("updates", "samples", *self._identity) if name not in state]:
            raise ValueError(f"expected the result of state_dict(), found no {missing[0]!r} among {sorted(state)}")
        for name, expected in self._identity.items():
            if state[name] != expected:
                raise ValueError(f"the state belongs to another run: expected {name} {expected}, found {state[name]}")
        if not 0 <= state["updates"] <= self.total:
            raise ValueError(f"expected 0 to {self.total} complete updates, found {state['updates']}")
        samples = self.at(state["updates"]).samples if state["updates"] else 0
        if samples != state["samples"]:
            raise ValueError(f"the state belongs to a run of another length: expected {samples} samples in update "
                             f"{state['updates']}, found {state['samples']}")
        self.done = state["updates"]
