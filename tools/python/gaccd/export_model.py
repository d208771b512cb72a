"""Exports PyTorch models for gaccd: a folder with the network, graph.txtpb, and its weights.

Imported lazily: needs.py says what it needs.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import os
import re
from typing import Any, Iterable, Iterator, Mapping, Sequence, Union

import torch
from safetensors.torch import save_file
from torch._subclasses.fake_tensor import FakeTensor

from .export_evaluation import difference_in_evaluation
from .export_experts import all_experts, experts_advice
from .export_gradients import detach_no_grad, refuse_own_gradients
from .export_graph import PREDICTIONS, GraphBuilder
from .export_integers import check_integers
from .export_lengths import Reference, max_magnitude, shorter_graphs
from .export_ops import WHOLE_OPS
from .export_refusals import lines_of_fixed_samples, quietly, reason
from .export_summary import Summary, summarize
from .export_text import graph_text
from .export_types import ExportError, Input

Example = Union[torch.Tensor, Sequence[torch.Tensor], Mapping[str, torch.Tensor]]
# Names of model arguments in the data, unless the caller gives them.
DATA_NAMES = {"input_ids": "tokens", "token_type_ids": "segments"}
MAX_SAMPLES = 2**40  # PyTorch 2.7 refuses x[:, 1:3] without a limit, as the end of its first slice is 2^63 - 1
UNUSUAL_SAMPLES = 67  # hardly another size of a model


def export(model: torch.nn.Module, example: Example, path: str | os.PathLike[str], *,
           inputs: Mapping[str, str] | None = None) -> Summary:
    """Writes `model` to the folder `path`, for model { graph { path: } } of a job. Returns a summary to print().

    example: arguments of model() with at least two samples in the first dimension: a tensor, several, or a dict of
    named arguments. inputs: argument -> tensor of the data. By default a single argument is "features", or "tokens" if
    it contains integers; input_ids is "tokens", token_type_ids is "segments", other arguments have their own names.
    Replaces an exported model at `path`; other files there are kept. ExportError: gaccd cannot train the model, with
    the op and the line that calls it; or the folder contains something else.
    """
    if not os.fspath(path):
        raise ExportError("path: expected a folder, found an empty name")
    replaced = _check_path(path)
    _check_model(model)
    args, kwargs = _arguments(example)
    tensors = [*args, *kwargs.values()]
    samples = tensors[0].shape[0] if tensors and tensors[0].dim() else 0
    if samples < 2 or any(not t.dim() or t.shape[0] != samples for t in tensors):
        raise ExportError("example: expected tensors of the same samples, at least 2, in their first dimension, "
                          f"found {[tuple(t.shape) for t in tensors]}")
    _check_forward(model, len(args), kwargs)
    builder = _build(model, args, kwargs, inputs or {})
    _check_output(builder)
    check_integers(builder)
    reference = Reference(model, lambda found: next(iterate_outputs(found)))
    differs = _check_samples(reference, args, kwargs, [builder.min_table_rows(one) for one in builder.inputs], builder.draws_uniform)
    shorter = shorter_graphs(builder, reference, lambda cut, before: _build(model, (), cut, inputs or {}, before))
    text = graph_text(builder, shorter)
    os.makedirs(path, exist_ok=True)
    with open(os.path.join(path, "graph.txtpb"), "w", encoding="utf-8") as file:
        file.write(text)
    save_file({name: tensor.detach().to("cpu").contiguous().clone() for name, tensor in builder.weights()},
              os.path.join(path, "weights.safetensors"))
    return summarize(model, builder, os.fspath(path), list(shorter), replaced, differs, _switched(model))


def _check_model(model: torch.nn.Module) -> None:
    if not isinstance(model, torch.nn.Module):
        raise ExportError(f"model: expected a torch.nn.Module, found {model if isinstance(model, type) else type(model).__name__}")
    if hasattr(model, "_orig_mod"):
        raise ExportError("expected the model that torch.compile was given, model._orig_mod, found the compiled one")
    if isinstance(model, (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel)):
        raise ExportError(f"expected the model that {type(model).__name__} was given, model.module, found {type(model).__name__}")
    if isinstance(model, torch.jit.ScriptModule):
        raise ExportError("expected the model that torch.jit was given, found the scripted or traced one")
    lazy = [name for name, one in model.named_parameters() if isinstance(one, torch.nn.parameter.UninitializedParameter)]
    if lazy:
        raise ExportError(f"{lazy[0]}: has no size yet; call the model once with the example")
    if torch.is_inference_mode_enabled() or any(one.is_inference() for one in model.parameters()):
        raise ExportError("expected a model made and exported outside of torch.inference_mode(), in which PyTorch follows no gradients")
    if packed := [name for name, one in model.named_modules() if re.match(r"torch\.ao\.nn\..*quantized", type(one).__module__)]:
        raise ExportError(f"{packed[0]}: is a quantized {type(model.get_submodule(packed[0])).__name__}, which cannot be trained; export the model "
                          "from which it was made")
    if meta := [name for name, one in [*model.named_parameters(), *model.named_buffers()] if one.is_meta]:
        raise ExportError(f"{meta[0]}: has no values, as it is on the device meta; model.to_empty(device='cpu') and initial weights give some")
    if empty := [name for name, one in model.named_parameters() if not one.numel()]:
        raise ExportError(f"{empty[0]}: expected parameters with values, found the shape {list(model.get_parameter(empty[0]).shape)}; "
                          "remove it from the model")
    for name, one in model.named_modules():
        if isinstance(one, torch.nn.modules.batchnorm._BatchNorm) and one.track_running_stats and one.momentum is None:
            raise ExportError(f"{name}: momentum: expected a number in (0, 1], found None (the mean over all updates); PyTorch's default is 0.1")
    named, own = set(dict(model.named_parameters())), set(model.state_dict())
    if renamed := sorted(named - own):
        raise ExportError(f"{renamed[0]}: is not in state_dict() under its name, which a hook changes; remove the hook for the export")


def _switched(model: torch.nn.Module) -> list[str]:
    """Outermost parts in evaluation mode of a model in training mode that are in training mode after model.train()."""
    if not model.training:
        return []
    found = [name for name, module in model.named_modules() if not module.training]
    with _training(model):
        found = [name for name in found if model.get_submodule(name).training]
    return [name for name in found if not any(name.startswith(f"{other}.") for other in found)]


def _check_forward(model: torch.nn.Module, given: int, named: Iterable[str]) -> None:
    arguments = list(inspect.signature(model.forward).parameters.values())
    several = [one.name for one in arguments if one.kind is inspect.Parameter.VAR_POSITIONAL]
    known = {one.name for one in arguments if one.kind not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)}
    if unnamed := [name for name in named if name not in known]:
        way = ("; of an argument that is a dictionary, write a module around the model, with forward(self, "
               f"{', '.join(named)}) that returns self.model({{{', '.join(f'{name!r}: {name}' for name in named)}}})"
               ) if len(arguments) == 1 else ""
        raise ExportError(f"{unnamed[0]}: expected an argument of forward with this name, found {', '.join(one.name for one in arguments)}{way}")
    missing = [one.name for one in arguments[given:] if one.name in known and one.default is inspect.Parameter.empty and one.name not in named]
    if missing:
        raise ExportError(f"{missing[0]}: forward needs this argument, expected an example of it, as in "
                          f"export(model, {{'{missing[0]}': tensor, ..}}, path)")
    if several and given >= len([one for one in arguments if one.kind is not inspect.Parameter.KEYWORD_ONLY]):
        raise ExportError(f"forward(*{several[0]}): expected an argument with a name for each input, which names its data")


def _check_path(path: str | os.PathLike[str]) -> bool:
    """Whether the folder contains an exported model. ExportError: it contains something else."""
    if not os.path.lexists(path):
        return False
    names = sorted(name for name in os.listdir(path) if name[0] != ".") if os.path.isdir(path) else None
    if names is None or (names and "graph.txtpb" not in names):
        found = "a file" if names is None else f"{names[0]!r}" + (f" and {len(names) - 1} more" if names[1:] else "")
        raise ExportError(f"path: expected a new or empty folder, or one with an exported model, found {found} "
                          f"at {os.fspath(path)!r}")
    return bool(names)


def _build(model: torch.nn.Module, args: tuple[torch.Tensor, ...], kwargs: dict[str, torch.Tensor],
           inputs: Mapping[str, str], others: GraphBuilder | None = None) -> GraphBuilder:
    tensors = [*args, *kwargs.values()]
    _check_memory(state_tensors(model))
    with _training(model), all_experts(model), refuse_own_gradients(model):
        program = _capture(model, args, kwargs)
    names = [spec.arg.name for spec in program.graph_signature.input_specs if spec.kind.name == "USER_INPUT"]
    named = [Input(name, _data_name(name, tensor, len(tensors), inputs), tensor) for name, tensor in zip(names, tensors)]
    _check_names(named, inputs, state_tensors(model))
    try:
        return GraphBuilder(program, state_tensors(model), named, others)
    except ExportError as error:
        if way := experts_advice(model):
            raise ExportError(f"{error}{way}") from error
        raise


def _check_names(named: list[Input], inputs: Mapping[str, str], tensors: Mapping[str, torch.Tensor]) -> None:
    arguments = ", ".join(one.argument for one in named)
    if unknown := [name for name in inputs if name not in {one.argument for one in named}]:
        raise ExportError(f"inputs: expected names of arguments ({arguments}), found {unknown[0]!r}")
    for i, one in enumerate(named):
        if others := [other.argument for other in named[:i] if other.name == one.name]:
            raise ExportError(f"inputs: expected other data for each argument, found {one.name!r} for {others[0]!r} and {one.argument!r}")
        if one.name == "tokens" and one.example.dim() > 2:
            raise ExportError(f"{one.argument}: expected tokens [samples, length], found {list(one.example.shape)}; other integers need another name, "
                              f"as by inputs={{{one.argument!r}: 'ids'}}")
        if one.name in tensors:
            raise ExportError(f"{one.name}: a parameter has the name of the data that the argument {one.argument!r} reads; rename one of both, the "
                              "data by inputs={..}")


def _check_output(builder: GraphBuilder) -> None:
    if not (dtype := builder.output_node.meta["val"].dtype).is_floating_point:
        raise ExportError(f"expected a prediction of floating-point numbers, found {dtype}; loss and metrics need the values before they are "
                          "compared or rounded")
    shape = builder.shape(builder.output_node)
    if len(shape) not in (1, 2, 3):
        raise ExportError(f"expected a prediction [samples], [samples, values] or [samples, tokens, values], found {len(shape)} dimensions, "
                          f"{[size if isinstance(size, int) else 'N' for size in shape]}; of classes of pixels, as in segmentation, let a "
                          "module around it give y.flatten(2).transpose(1, 2), whose labels are an array [samples, pixels]; of numbers, y.flatten(1)")


def _gaussian_nll(x: torch.Tensor, target: torch.Tensor, var: torch.Tensor | float, full: bool = False, eps: float = 1e-6,
                  reduction: str = "mean") -> torch.Tensor:
    """torch's gaussian_nll_loss without its check of the values of `var`, which torch.export cannot follow. As there, small
    ones are replaced by eps but get the gradient."""
    if isinstance(var, float):
        var = torch.full_like(x, var)
    if var.size() == x.size()[:-1]:
        var = var.unsqueeze(-1)
    var = torch.where(var < eps, var - var.detach() + eps, var)
    losses = 0.5 * (var.log() + (x - target) ** 2 / var) + (0.5 * math.log(2 * math.pi) if full else 0)
    return losses.mean() if reduction == "mean" else losses.sum() if reduction == "sum" else losses


@contextlib.contextmanager
def _training(model: torch.nn.Module) -> Iterator[None]:
    """Training mode, with in-place dropout as dropout, because torch.export turns it into masks; without the key-value cache
    of transformers, which is only for generation; without the detection of causal masks of nn.Transformer, which needs
    values; and without Module.to() where it changes nothing."""
    was = [(module, module.training, getattr(module, "inplace", None)) for module in model.modules()]
    configs: dict[int, Any] = {}
    for module in model.modules():
        config = getattr(module, "config", None)
        if getattr(config, "use_cache", None) is True:
            configs[id(config)] = config
    gaussian_nll, torch.nn.functional.gaussian_nll_loss = torch.nn.functional.gaussian_nll_loss, _gaussian_nll
    layers, detect = torch.nn.modules.transformer, torch.nn.modules.transformer._detect_is_causal_mask
    layers._detect_is_causal_mask = lambda mask, is_causal=None, size=None: is_causal is True
    to = torch.nn.Module.to

    def to_other(module: torch.nn.Module, *args: Any, **kwargs: Any) -> torch.nn.Module:
        """Not to what it is already, as torch.export does not know that parameters remain the same."""
        device, dtype, *_ = torch._C._nn._parse_to(*args, **kwargs)
        same = all(device in (None, one.device) and (dtype in (None, one.dtype) or not one.is_floating_point())
                   for one in (*module.parameters(), *module.buffers()))
        return module if same else to(module, *args, **kwargs)
    torch.nn.Module.to = to_other
    model.train()
    for config in configs.values():
        config.use_cache = False
    for module, _, inplace in was:
        if inplace and isinstance(module, torch.nn.modules.dropout._DropoutNd):
            module.inplace = False
    try:
        yield
    finally:
        layers._detect_is_causal_mask, torch.nn.Module.to = detect, to
        torch.nn.functional.gaussian_nll_loss = gaussian_nll
        for module, training, inplace in was:
            module.training = training
            if inplace is not None:
                module.inplace = inplace
        for config in configs.values():
            config.use_cache = True


def _arguments(example: Example) -> tuple[tuple[torch.Tensor, ...], dict[str, torch.Tensor]]:
    """Copies: torch.export takes arguments that are the same tensor for one input, without a word."""
    def copied_tensor(value: torch.Tensor) -> torch.Tensor:
        if not isinstance(value, torch.Tensor):
            raise ExportError(f"example: expected tensors, found {type(value).__name__}; let a module around the model fix arguments that "
                              "are no tensors; torch.from_numpy makes tensors of arrays")
        return value.detach().clone()
    if isinstance(example, Mapping):
        return (), {name: copied_tensor(value) for name, value in example.items()}
    if not isinstance(example, (torch.Tensor, Iterable)):
        raise ExportError(f"example: expected a tensor, several, or a mapping of them, found {type(example).__name__}")
    return tuple(map(copied_tensor, [example] if isinstance(example, torch.Tensor) else example)), {}


def _data_name(argument: str, tensor: torch.Tensor, count: int, inputs: Mapping[str, str]) -> str:
    if argument in inputs:
        return inputs[argument]
    if tensor.dim() > 2 and not tensor.is_floating_point():  # no text: [samples, choices, length]
        return argument
    if argument in DATA_NAMES or count > 1:
        return DATA_NAMES.get(argument, argument)
    return "features" if tensor.is_floating_point() else "tokens"


def _capture(model: torch.nn.Module, args: tuple[torch.Tensor, ...], kwargs: dict[str, torch.Tensor]) -> Any:
    program = _traced(model, args, kwargs)
    if not _for_any_samples(program):  # a decomposition took the number of samples for another size, to which it is equal
        def more(tensor: torch.Tensor) -> torch.Tensor:
            return tensor[torch.arange(UNUSUAL_SAMPLES) % len(tensor)]
        program = _traced(model, tuple(map(more, args)), {name: more(tensor) for name, tensor in kwargs.items()})
        if not _for_any_samples(program):
            raise ExportError("torch.export takes the model for one number of samples alone; take x.shape[0] instead of a number")
    return program


def _for_any_samples(program: Any) -> bool:
    names = [spec.arg.name for spec in program.graph_signature.input_specs if spec.kind.name == "USER_INPUT"]
    inputs = [node.meta["val"].shape[0] for node in program.graph.nodes if node.op == "placeholder" and node.name in names]
    return all(isinstance(size, torch.SymInt) and not size.node.expr.is_number for size in inputs)


@contextlib.contextmanager
def _attributes_kept(model: torch.nn.Module) -> Iterator[None]:
    """Restores attributes that forward sets to the sizes and values that torch.export uses in place of real ones: the model
    cannot be copied with them, or called."""
    before = [(module, dict(vars(module))) for module in model.modules()]
    try:
        yield
    finally:
        for module, known in before:
            for name, value in list(vars(module).items()):
                if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool, FakeTensor)):
                    del vars(module)[name]
                    vars(module).update({name: known[name]} if name in known else {})


def _traced(model: torch.nn.Module, args: tuple[torch.Tensor, ...], kwargs: dict[str, torch.Tensor]) -> Any:
    batch = torch.export.Dim("batch", max=MAX_SAMPLES)
    shapes: Any = {name: {0: batch} for name in kwargs} if kwargs else tuple({0: batch} for _ in args)
    fixed: list[tuple[bool, str]] = []
    try:
        with quietly(), _attributes_kept(model), lines_of_fixed_samples() as fixed:
            program = torch.export.export(model, args, kwargs, dynamic_shapes=shapes, strict=False)  # as by default in newer versions
    except ExportError:
        raise
    except Exception as error:  # any type, depending on the version of PyTorch
        raise ExportError(f"torch.export cannot follow the model: {reason(error, model, fixed)}") from error
    detach_no_grad(model, program)
    decompositions = torch.export.default_decompositions()
    for op in WHOLE_OPS:
        decompositions.pop(op, None)
    try:
        with quietly():
            program = program.run_decompositions(decompositions)
    except Exception as error:  # any type, depending on the version of PyTorch
        raise ExportError(f"torch.export cannot take the model apart: {reason(error, model)}") from error
    changed = program.graph_signature.user_inputs_to_mutate
    if changed:
        raise ExportError(f"the model changes its input {next(iter(changed.values()))!r} in place, which gaccd's data does not "
                          "allow; let it work on a copy, or without an operation that ends in _")
    return program


def _places(tensor: torch.Tensor) -> torch.Tensor:
    """The positions of the values in the memory of the tensor."""
    return torch.arange(tensor.untyped_storage().nbytes() // tensor.element_size()).as_strided(
        tensor.size(), tensor.stride(), tensor.storage_offset()).flatten()


def _check_memory(tensors: Mapping[str, torch.Tensor]) -> None:
    """Refuses views of trained parameters, which would change with them in PyTorch; gaccd only supports identical tensors."""
    first: dict[int, list[tuple[str, torch.Tensor]]] = {}  # by address
    for name, tensor in tensors.items():
        if tensor.is_meta or not tensor.numel():
            continue
        others = first.setdefault(tensor.untyped_storage().data_ptr(), [])
        for known, other in others:
            if tensor is not other and (tensor.requires_grad or other.requires_grad) and bool(
                    torch.isin(_places(tensor), _places(other)).any()):
                raise ExportError(f"{name}: shares memory with {known}, so that training one changes the other; gaccd trains two of their "
                                  "own. Use one parameter, and its transpose or part in forward, or a copy (.clone())")
        others.append((name, tensor))


def state_tensors(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The tensors of the state_dict, without what get_extra_state() adds; tied tensors under each of their names."""
    return {name: value for name, value in model.state_dict(keep_vars=True).items() if isinstance(value, torch.Tensor)}


def _other_values(tensor: torch.Tensor, rows: int, of_example: bool) -> torch.Tensor:
    """Random values; of_example, or ids without an upper bound `rows`: those of the next sample."""
    if of_example or not (rows or tensor.is_floating_point()):
        return tensor.roll(1, 0)
    return torch.randn_like(tensor) if tensor.is_floating_point() else torch.randint_like(tensor, rows)


def _with_other_labels(changed: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """`changed`; if it has the integers of `tensor`, as labels that are the same in all samples of the example, with another
    last value in the first sample."""
    if tensor.is_floating_point() or not tensor.numel() or not torch.equal(changed, tensor):
        return changed
    other = changed.clone()
    last = other.view(len(other), -1)[0, -1:]
    last.copy_(last == 0 if int(last) < 2 else last - 1)
    return other


def iterate_outputs(result: Any) -> Iterator[torch.Tensor]:
    if isinstance(result, torch.Tensor):
        yield result
    elif isinstance(result, Mapping):
        for name in sorted(result, key=lambda name: PREDICTIONS.index(name) if name in PREDICTIONS else len(PREDICTIONS)):
            yield from iterate_outputs(result[name])
    elif isinstance(result, (list, tuple)):
        for one in result:
            yield from iterate_outputs(one)


def _check_samples(reference: Reference, args: tuple[torch.Tensor, ...], kwargs: dict[str, torch.Tensor], rows: list[int],
                   uniform: bool, of_example: bool = False) -> float:
    """Checks that changing one sample only changes its own rows, and that a sample gives the same result alone.
    rows: upper bound of ids, by input; 0: use ids of the example. uniform: see difference_in_evaluation(). of_example: use its
    values, as the model may take the root of numbers that are not negative. Returns the relative difference of outputs between
    evaluation and training."""
    def run(given: list[torch.Tensor]) -> torch.Tensor:
        return reference(*given[:len(args)], **dict(zip(kwargs, given[len(args):])))

    tensors = [_other_values(t, below, of_example) for t, below in zip((*args, *kwargs.values()), rows)]
    others = [t.clone() for t in tensors]
    for tensor, below in zip(others, rows):
        tensor[:1] = _other_values(tensor[:2], below, of_example)[:1]
    try:
        whole, changed, alone = run(tensors), run(others), run([t[-1:].clone() for t in tensors])  # a view would begin inside of the memory
    except ExportError:
        if not any(rows):
            raise
        return _check_samples(reference, args, kwargs, [0] * len(rows), uniform)  # forward computes other ids from them
    if not bool(whole.isfinite().all()):
        if of_example:
            raise ExportError("the prediction is not finite for the values of the example")
        return _check_samples(reference, args, kwargs, rows, uniform, True)
    scale = max_magnitude(whole)
    labelled = reference.tried(lambda: run([_with_other_labels(*pair) for pair in zip(others, tensors)]), changed)
    for found, expected in ((changed[1:], whole[1:]), (labelled[1:], whole[1:]), (alone, whole[-1:])):
        if difference := reference.difference(found, expected, scale):
            if reference.difference(run(tensors), whole, scale):
                raise ExportError("in evaluation, forward gives another output when it is called again, as with dropout that does not ask "
                                  "for self.training: dropout_p=self.p if self.training else 0.0")
            raise ExportError("the samples of a batch depend on each other: changing one changes the output of another by "
                              f"{difference:.3g}, of outputs up to {scale:.3g}. An update of gaccd is a sum over samples")
    return difference_in_evaluation(reference, lambda: run(tensors), scale, uniform) / scale
