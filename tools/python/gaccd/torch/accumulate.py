"""One update over micro-batches and ranks."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from importlib import import_module
from types import TracebackType
from typing import Any, Iterator, Sequence

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from .batches import IDENTITY_BITS, Update, all_even

# Since PyTorch 2.0; torch.optim itself does not show this module.
register_step_hook = getattr(import_module("torch.optim.optimizer"), "register_optimizer_step_pre_hook", None)

SAME_VARIANCE = 1e-9  # at most, relative, of the norm of a gradient over ranks: no more than rounding
EMBEDDINGS = (torch.nn.Embedding, torch.nn.EmbeddingBag)


class AuditError(Exception):
    """The samples counted over all ranks differ from the plan. Raised on every rank, before the optimizer steps."""

    def __init__(self, what: str, expected: float, found: float) -> None:
        super().__init__(f"{what}: expected {expected:.17g}, found {found:.17g}")
        self.expected, self.found, self._what = expected, found, what

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._what, self.expected, self.found)


class _TouchParameters(torch.nn.Module):
    """Replaces the model on a rank without samples. All gradients are 0, even if a parameter is not finite."""

    def __init__(self, own: torch.nn.Module, parameters: Sequence[Tensor]) -> None:
        super().__init__()
        self._own, self._touched = (own,), tuple(parameters)  # tuples are not registered in the module

    def forward(self, zero: Tensor) -> Tensor:
        real = (torch.view_as_real(one) if one.is_complex() else one for one in self._touched)
        return sum((parameter.sum() * 0 for parameter in real), zero)

    def named_buffers(self, *args: Any, **more: Any) -> Iterator[tuple[str, Tensor]]:
        """The buffers that DDP broadcasts."""
        buffers: Iterator[tuple[str, Tensor]] = self._own[0].named_buffers(*args, **more)
        return buffers


def _changes_parameters(module: torch.nn.Module) -> bool:
    """Whether forward may change its parameters in place."""
    if isinstance(module, EMBEDDINGS):
        return module.max_norm is not None
    return isinstance(module, torch.nn.RNNBase)  # flatten_parameters()


class Accumulation:
    """See accumulate(). For one update; `loss` is its mean when it is complete."""

    def __init__(self, model: torch.nn.Module, update: Update) -> None:
        self._model, self._update = model, update
        self._parallel = model if isinstance(model, DistributedDataParallel) else None
        self._group = None if self._parallel is None else self._parallel.process_group
        self._world = 1 if self._parallel is None else dist.get_world_size(self._group)
        if self._world != update.world:
            if self._parallel is None:
                raise ValueError(f"expected a DistributedDataParallel, as the plan has {update.world} ranks, found "
                                 f"{type(model).__name__} (with torch.compile: DistributedDataParallel(torch.compile(module)); "
                                 "others, as FSDP, are not supported)")
            raise ValueError(f"expected {update.world} ranks (the plan), found {self._world}")
        rank = 0 if self._parallel is None else dist.get_rank(self._group)
        if rank != update.rank:
            raise ValueError(f"expected the samples of rank {rank}, found those of rank {update.rank}")
        if self._parallel is not None and self._world > 1:
            self._refuse_unsupported(self._parallel)
        named = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
        if not named:
            raise ValueError("expected a model with parameters that require a gradient, found none")
        self._names, self._parameters = [name for name, _ in named], [parameter for _, parameter in named]
        changing = {id(one) for module in model.modules() if _changes_parameters(module) for one in module.parameters()}
        self._constant = [one for one in self._parameters if id(one) not in changing]  # within an update
        self._versions, self._step_hook = self._versions_now(), None
        self._device = self._parameters[0].device
        self._begun = self._last = self._reduced = self._disturbed = self._late = self._uses_first = False
        self._marks: list[tuple[int, int] | None] | None = None
        self._before: list[tuple[int, int] | None] = [None] * len(self._parameters)  # the last backward()
        self._samples = self._weighted = self._plain = 0
        self._weight = torch.zeros((), dtype=torch.float64, device=self._device)
        self._loss_sum = torch.zeros_like(self._weight)
        self.loss = float("nan")

    def _refuse_unsupported(self, model: DistributedDataParallel) -> None:
        """At the first update, for all of the run."""
        update = self._update
        plans = [update.plan] if update.owner is None else update.owner.plans
        if model.static_graph:
            if update.uneven:
                raise ValueError("static_graph=True needs samples on every rank: expected a plan without speeds")
            smallest = min(plan.effective_batch for plan in plans)
            if smallest < update.world:
                raise ValueError("static_graph=True needs samples on every rank: expected at least "
                                 f"{update.world} samples in every update, found {smallest}")
        for module in model.modules():
            if isinstance(module, EMBEDDINGS) and module.weight.requires_grad:
                if module.sparse:  # DDP would divide the gradients of other parameters by the number of ranks twice
                    raise ValueError("expected embeddings with dense gradients, found sparse=True")
                if module.max_norm is not None:
                    raise ValueError("expected embeddings without max_norm, by which each rank changes the rows that it "
                                     f"uses, found {module}")
            if isinstance(module, torch.nn.SyncBatchNorm) and not all_even(plans):
                raise ValueError("SyncBatchNorm needs as many micro-batches on every rank in every update: expected "
                                 "ExactBatches.even, found False")

    def __enter__(self) -> Accumulation:
        self._model.zero_grad(set_to_none=True)
        self._versions, self._marks = self._versions_now(), self._gradients()
        if register_step_hook is not None:
            self._step_hook = register_step_hook(self._notice_step)
        return self

    def __iter__(self) -> Iterator[Any]:
        """The micro-batches of this rank. DDP only reduces after the last one."""
        steps, self._begun = len(self._update.micro_batches), True
        for step, batch in enumerate(self._update.batches, 1):
            self._last = step == steps
            with nullcontext() if self._last or self._parallel is None else self._parallel.no_sync():
                yield batch

    def backward(self, losses: Tensor, weights: Tensor | None = None, *, samples: int | None = None,
                 count: Tensor | float | None = None, scaler: Any = None) -> None:
        """Adds the gradient of one micro-batch. To be called once per micro-batch.

        losses: one per sample (reduction="none"); or with weights of the same shape, first dimension samples, such as 1
        for tokens that count and 0 for others; or their sum as one number, with `samples` and, unless the loss is a mean
        over samples, `count`, its part of the divisor. The gradient of the update is that of the sum over all ranks,
        divided by the sum of weights or counts, else by the number of samples. Either all micro-batches have weights or
        none. scaler: a GradScaler.
        """
        if weights is not None and count is not None:
            raise ValueError("expected weights or a count, found both")
        if any(isinstance(one, Tensor) and one.requires_grad for one in (weights, count)):
            raise ValueError("expected weights or a count without gradient: the divisor, their sum, is a constant")
        if isinstance(count, Tensor) and count.dim() != 0:
            raise ValueError(f"expected a count that is one number, found shape {list(count.shape)}")
        total, found = self._total_of(losses, weights, samples)
        if self._reduced:
            self._late = True  # other ranks would wait for a second reduction, or not get this gradient
            return
        if self._parallel is not None and not self._begun:  # every micro-batch would be reduced
            raise ValueError("expected backward() in the loop over this window, found it outside (for several models each "
                             "takes the micro-batches in a loop of its own, see pytorch.md)")
        self._check_gradients()
        if weights is not None:
            count = weights.detach().sum(dtype=torch.float64)
        self._samples += found
        self._weighted += count is not None
        self._plain += count is None
        self._weight += found if count is None else torch.as_tensor(count).detach()
        self._loss_sum += total.detach()
        scaled = total * (self._world / self._update.samples)  # DDP divides by the world size
        self._before = self._gradients()
        with self._watch_first():
            (scaled if scaler is None else scaler.scale(scaled)).backward()
        self._reduced = self._last
        self._marks = self._gradients()
        self._check_used()

    @staticmethod
    def _total_of(losses: Tensor, weights: Tensor | None, samples: int | None) -> tuple[Tensor, int]:
        """The sum of the losses, and the number of samples."""
        if weights is not None and weights.shape != losses.shape:
            raise ValueError(f"expected weights of shape {list(losses.shape)}, as the losses, found "
                             f"{list(weights.shape)}")
        if losses.dim() == 0:
            if samples is None:
                raise ValueError('expected a loss for each sample (reduction="none"), or their sum with samples=, '
                                 "found one number without samples=")
            if weights is not None:
                raise ValueError("expected count= with a loss that is one number, found weights")
            return losses, samples
        if losses.dim() > 1 and weights is None:
            raise ValueError(f"expected one loss for each sample, or weights, found losses of shape "
                             f"{list(losses.shape)}")
        if samples is not None and samples != len(losses):
            raise ValueError(f"expected {samples} samples, found losses of {len(losses)}")
        products = losses if weights is None else losses * weights
        return products.sum(dtype=torch.promote_types(products.dtype, torch.float32)), len(losses)

    @contextmanager
    def _watch_first(self) -> Iterator[None]:
        """Records whether samples use the parameter that a rank without samples touches."""
        def notice(gradient: Tensor) -> None:
            self._uses_first = True

        hook = self._parameters[0].register_hook(notice)
        try:
            yield
        finally:
            hook.remove()

    def _gradients(self) -> list[tuple[int, int] | None]:
        grads = [parameter.grad for parameter in self._parameters]
        return [None if grad is None else (id(grad), grad._version) for grad in grads]

    def _check_gradients(self) -> None:
        """Within an update only backward() may change gradients: zero_grad() would lose micro-batches."""
        self._disturbed |= self._marks is not None and self._marks != self._gradients()

    def _check_used(self) -> None:
        """Without find_unused_parameters DDP waits for the gradient of every parameter."""
        model = self._parallel
        if model is None or not self._last or model.find_unused_parameters or model.static_graph:
            return
        unused = [name for name, parameter in zip(self._names, self._parameters) if parameter.grad is None]
        if unused and self._versions == self._versions_now():  # no optimizer has set it to None
            raise ValueError(f"expected a gradient of every parameter, found none of {unused[0]}: a parameter that no "
                             "sample uses needs find_unused_parameters=True")

    def _versions_now(self) -> list[int]:
        """Operations in place increment them, but not those of optimizers with fused=True."""
        return [parameter._version for parameter in self._constant]

    def _notice_step(self, optimizer: torch.optim.Optimizer, *arguments: Any) -> None:
        own = set(map(id, self._parameters))
        self._disturbed |= any(id(one) in own for group in optimizer.param_groups for one in group["params"])

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if self._step_hook is not None:
            self._step_hook.remove()
        if kind is None:
            self._complete()

    def _complete(self) -> None:
        self._check_gradients()
        self._disturbed |= self._versions != self._versions_now()
        if self._parallel is not None and not self._reduced:
            self._reduce_without_samples(self._parallel)
        self._audit()
        if self._parallel is not None:
            self._share_buffers(self._parallel)
        self._update.complete()

    def _reduce_without_samples(self, model: DistributedDataParallel) -> None:
        """Participates in the reduction with DDP's own forward and backward, and adds 0."""
        touched = self._parameters[:1] if model.find_unused_parameters else self._parameters
        own = model.module
        model.module = _TouchParameters(own, touched)
        try:
            output = model.forward(torch.zeros((), device=self._device))  # not __call__: hooks expect the own output
        finally:
            model.module = own
        output.backward()

    def _share_buffers(self, model: DistributedDataParallel) -> None:
        """DDP replaces the buffers of all ranks, as running statistics, by those of rank 0. Where rank 0 had no samples
        it takes those of the first rank that had some."""
        ranks = self._update.plan.ranks
        if ranks[0].samples == 0 and model.broadcast_buffers:
            model._assign_modules_buffers()
            if len(model.modules_buffers) > 0:
                model._default_broadcast_coalesced(
                    authoritative_rank=next(one.rank for one in ranks if one.samples > 0))

    def _unreduced(self) -> list[bool]:
        """For each gradient of this rank: whether DDP did not reduce it. In PyTorch 1.13 with find_unused_parameters this
        includes parameters that only micro-batches before the last one used."""
        if self._parallel is None or not self._parallel.find_unused_parameters:
            return []
        return [before is not None and before == after for before, after in zip(self._before, self._gradients())]

    def _reduce(self, left: Sequence[float]) -> None:
        """Reduces, like DDP, the gradients that DDP did not reduce on some rank."""
        for parameter, ranks in zip(self._parameters, left):
            if ranks == 0:
                continue
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            dist.all_reduce(parameter.grad, group=self._group)
            parameter.grad /= self._world

    def _norms(self) -> Tensor:
        """Of the gradients and squared, by which ranks see that they have the same."""
        if self._world == 1:
            return torch.zeros(0, dtype=torch.float64, device=self._device)
        def norm(grad: Tensor | None) -> Tensor:
            if grad is None:
                return torch.zeros((), dtype=torch.float64, device=self._device)
            real = torch.view_as_real(grad) if grad.is_complex() else grad
            return torch.linalg.vector_norm(real, dtype=torch.float64).to(self._device)
        norms = torch.stack([norm(parameter.grad) for parameter in self._parameters])
        return torch.cat([norms, norms ** 2])

    def _check_same(self, what: str, norms: Sequence[float], left: Sequence[float]) -> None:
        """norms: the sums of _norms() over ranks; left: of parameters that _reduce() is still to reduce."""
        count = len(norms) // 2
        differ = [name for name, total, squares, ranks in
                  zip(self._names, norms[:count], norms[count:], left or [0] * count)
                  if ranks == 0 and self._world * squares - total ** 2 > SAME_VARIANCE * total ** 2]
        if differ:
            raise AuditError(f"{what}: parameters whose gradients differ between ranks, as {differ[0]} (was the module "
                             "called without its DistributedDataParallel? Was a parameter frozen, thawed, replaced or "
                             "added after that was made? Is one not used by the last micro-batch of a rank, without "
                             "find_unused_parameters=True?)", 0, len(differ))

    def _audit(self) -> None:
        planned = self._update.rank_samples
        number = self._update.number % (1 << IDENTITY_BITS)
        counts = torch.tensor([self._samples, abs(self._samples - planned), self._disturbed, self._late,
                               self._uses_first, self._weighted, self._plain, number,
                               number ** 2, self._update.identity, self._update.identity ** 2],
                              dtype=torch.float64, device=self._device)
        left = torch.tensor(self._unreduced(), dtype=torch.float64, device=self._device)
        norms = self._norms()
        totals = torch.cat([counts, torch.stack([self._weight, self._loss_sum]), norms, left])
        if self._parallel is not None:
            dist.all_reduce(totals, group=self._group)
        (samples, wrong, disturbed, late, use_first, weighted, plain, numbers, number_squares, identities,
         identity_squares, weight, loss, *more) = totals.tolist()
        norms_of_all, unreduced = more[:len(norms)], more[len(norms):]
        what = f"update {self._update.number}"
        if self._world * int(identity_squares) != int(identities) ** 2:
            ids = [one for one, in self._of_ranks(self._update.identity)]
            others = [rank for rank, one in enumerate(ids) if one != ids[0]]
            raise AuditError(f"{what}: ranks whose data set size, batch, seed, order, length of the run or plan is not "
                             f"that of rank 0 ({', '.join(f'rank {rank}' for rank in others)})", 0, len(others))
        if self._world * int(number_squares) != int(numbers) ** 2:
            raise AuditError(f"{what}: the sum of the numbers of the ranks' updates (was one skipped on some ranks alone?)",
                             self._world * number, numbers)
        if late != 0:
            raise AuditError(f"{what}: ranks that called backward() again after the last micro-batch, or after another "
                             "loop over the window", 0, late)
        if samples != self._update.samples or wrong != 0:
            taken = "" if samples > 0 else ("; was backward() of the loss called in place of window.backward()? Were "
                                            "the micro-batches loaded before, for another model?")
            raise AuditError(f"{what}: samples over all ranks{self._wrong_ranks(planned)}{taken}", self._update.samples,
                             samples)
        if disturbed != 0:
            raise AuditError(f"{what}: ranks where something else than backward() changed gradients or parameters "
                             "(optimizer.step() belongs after the `with` block)", 0, disturbed)
        if weighted != 0 and plain != 0:
            raise AuditError(f"{what}: micro-batches without weights or a count, where others have them", 0, plain)
        self._check_same(what, norms_of_all, unreduced)
        self._reduce(unreduced)
        if use_first == 0 and self._parallel is not None and self._parallel.find_unused_parameters:
            self._parameters[0].grad = None  # only touched by ranks without samples
        if not weight > 0:
            raise ValueError(f"{what}: expected a sum of weights above 0, found {weight:g}; update.complete() skips it")
        if weight != samples:
            grads = [parameter.grad for parameter in self._parameters if parameter.grad is not None]
            torch._foreach_mul_(grads, samples / weight)
        self.loss = loss / weight

    def _wrong_ranks(self, planned: int) -> str:
        """ " (rank 2: 3 of 4)"."""
        wrong = [f"rank {rank}: {found} of {expected}"
                 for rank, (found, expected) in enumerate(self._of_ranks(self._samples, planned)) if found != expected]
        return f" ({', '.join(wrong)})" if wrong else ""

    def _of_ranks(self, *numbers: int) -> list[list[int]]:
        """The numbers of every rank. A collective, for what all ranks know to be wrong."""
        own = torch.tensor(numbers, device=self._device)
        if self._parallel is None:
            return [list(numbers)]
        every = [torch.zeros_like(own) for _ in range(self._world)]
        dist.all_gather(every, own, group=self._group)
        return [one.tolist() for one in every]


def accumulate(model: torch.nn.Module, update: Update) -> Accumulation:
    """A context that accumulates the micro-batches of one update to the gradient of one large batch.

        for update in batches.updates(loader):
            with accumulate(model, update) as window:
                for x, y in window:
                    window.backward(cross_entropy(model(x), y, reduction="none"))
            optimizer.step()

    Sets the gradients to None at the start. Ranks reduce once, with the last micro-batch, as DDP does; ranks without
    samples participate. At the end, the gradient on every rank is the sum over all samples divided by their number (or
    the sum of their weights), the same on all ranks, and the samples counted over all ranks equal the plan: AuditError
    otherwise, on all ranks. model: DistributedDataParallel without a communication hook, with all parameters that are
    trained; on one rank any module.
    """
    return Accumulation(model, update)
