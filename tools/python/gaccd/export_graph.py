"""Converts the graph of torch.export to that of proto/graph.proto."""

from __future__ import annotations

import contextlib
from typing import Any, Iterator, Mapping

import torch

from .export_samples import equal, for_other_samples, reduced
from .export_types import HIDDEN, SAMPLES, Complex, ExportError, Input, Node, Refused, SampleMask, Uniform, is_detached, is_discrete, is_random, source_location, takes_shape_alone

MAX_CONSTANT = 1 << 24  # values
MAX_FLOAT = torch.finfo(torch.float32).max
PREDICTIONS = ("logits", "prediction_logits", "prediction_outputs")  # among several outputs with names


class GraphBuilder:
    """Converts the graph of torch.export to the format of gaccd."""

    def __init__(self, program: Any, tensors: dict[str, torch.Tensor], inputs: list[Input],
                 others: GraphBuilder | None = None) -> None:
        """others: another builder of the same file, to share constants."""
        from .export_ops import convert
        self.program = program
        self.inputs = inputs
        self.nodes: list[tuple[str, Node, str]] = []
        self._names: dict[Any, Any] = {}  # fx node -> name, or its constant value: a tensor, a number, a SampleMask
        self.ids: dict[str, str] = {}  # name of an integer value of the data -> name of its input
        self._numbers: dict[str, str] = {}  # name of such a value -> name of its copy as floats
        self.constants: dict[str, torch.Tensor] = dict(others.constants) if others else {}  # constants of the file
        self._kept_constants: set[str] = set(self.constants)
        self._next_constant: int = others._next_constant if others else 0
        self.masks_used: set[Any] = set()  # fx nodes that draw masks
        self._others: dict[Any, torch.Tensor | None] = {}  # for_other_samples() by fx node
        self._drawn: dict[Any, str] = {}  # fx nodes that draw numbers -> the name of these
        self.folded = 0  # number of calls evaluated as constants
        self.input_dependent: set[Any] = set()  # fx nodes that depend on inputs; others have one row for all samples in the file
        self._batch: Any = None
        self.own: dict[str, torch.Tensor] = {}  # tensors of the state_dict, each once
        self.aliases: dict[str, list[str]] = {}
        self._canonical: dict[str, str] = {}
        for name, tensor in tensors.items():
            first = next((known for known, other in self.own.items() if other is tensor), name)
            self.own.setdefault(first, tensor)
            self._canonical[name] = first
            if first != name:
                self.aliases.setdefault(first, []).append(name)
        self._mutated = set(program.graph_signature.buffers_to_mutate.values())
        self._buffers = {spec.target for spec in program.graph_signature.input_specs if spec.kind.name == "BUFFER"}
        self._buffers = {self._canonical[name] for name in self._buffers if name in self._canonical}
        self._add_placeholders()
        self.output = self._convert_nodes(convert)
        self._reached = self._reached_by_gradients()
        self._check_weights()
        self._check_changes()

    # Interface of the converters.

    def refuse(self, node: Any, why: str) -> ExportError:
        return ExportError(f"{node.target}: {why}; it is called at {source_location(node) or 'an unknown line'}")

    def value(self, argument: Any) -> Any:
        """The name of a value, a constant tensor, or the argument itself."""
        return self._names[argument] if isinstance(argument, torch.fx.Node) else argument

    def value_name(self, node: Any, argument: Any) -> str:
        """The name of the value as floats, as nodes of the file take it."""
        name = self.raw_value_name(node, argument)
        if name not in self.ids:
            return name
        if name not in self._numbers:
            self._numbers[name] = self.emit(node, Node("numbers", [name], {}))
        return self._numbers[name]

    def raw_value_name(self, node: Any, argument: Any) -> str:
        """The name of the value; ids stay integers."""
        value = self.value(argument)
        if isinstance(value, str):
            return value
        if isinstance(value, torch.Tensor):
            return self._repeat_sample_rows(node, argument) or self.constant(node, self.for_all_samples(node, argument))
        if isinstance(value, Refused):
            raise value.error
        if isinstance(value, Uniform) and value.drawn not in self.masks_used:
            return self._uniform_name(node, value)
        if isinstance(value, (SampleMask, Uniform)):
            raise self.refuse(value.drawn, "draws random numbers that become a mask, which is used other than to drop values; gaccd draws "
                                           "those of dropout, rand, randn, randint, bernoulli and exponential, by sample, and no others; "
                                           "as numbers take (torch.rand(shape) < p).float(); of models with drop_block_rate, 0")
        raise self.refuse(node, "takes complex values" if isinstance(value, Complex) else f"takes {value!r}, expected a value")

    @property
    def draws_uniform(self) -> bool:
        """Whether it uses uniform random numbers other than to drop values."""
        return bool(self._drawn)

    def _draws_for_samples(self, node: Any) -> bool:
        value = node.meta.get("val")
        return is_random(node) and isinstance(value, torch.Tensor) and not all(isinstance(size, int) for size in value.shape)

    def is_drawn(self, node: Any) -> bool:
        """Whether the random numbers of `node` are used already, as a mask or as numbers."""
        return node in self.masks_used or node in self._drawn

    def _uniform_name(self, node: Any, value: Uniform) -> str:
        from .export_noise import uniform  # which imports this module
        if value.drawn not in self._drawn:
            self._drawn[value.drawn] = uniform(self, value.drawn)
        name = self._drawn[value.drawn]
        return self.emit(node, Node("shift", [name], {"amount": value.least})) if value.least else name

    def keep_ids(self, made: str, of: str) -> str:
        """Marks `made` as ids if `of` is, after ids were moved or selected."""
        if of in self.ids:
            self.ids[made] = self.ids[of]
        return made

    def emit(self, node: Any, made: Node) -> str:
        """Adds an intermediate node for `node` to the file. Returns its name."""
        name = self._new_name(f"{node.name}.{len(self.nodes)}")
        self.nodes.append((name, made, source_location(node)))
        return name

    def _new_name(self, name: str) -> str:
        """The name, changed where a parameter or an input has it."""
        while name in self.own or any(one.name == name for one in self.inputs):
            name += ":"
        return name

    def constant(self, node: Any, tensor: torch.Tensor) -> str:
        """Adds a constant to the file, or finds an equal one. Returns its name."""
        if tensor.numel() > MAX_CONSTANT:
            raise self.refuse(node, f"takes a constant of {tensor.numel()} values, expected at most {MAX_CONSTANT}")
        values = tensor.detach().to("cpu", torch.float32).clamp(min=HIDDEN, max=-HIDDEN).contiguous()
        if values.isnan().any() or (not tensor.is_floating_point() and not torch.equal(values.to(tensor.dtype), tensor)):
            raise self.refuse(node, "takes a constant that is no f32")
        for name, known in self.constants.items():
            if known.shape == values.shape and torch.equal(known, values):
                return name
        while (name := f"constant:{self._next_constant}") in self.own:
            self._next_constant += 1
        self._next_constant += 1
        self.constants[name] = values
        return name

    def for_all_samples(self, node: Any, argument: Any) -> torch.Tensor:
        """A constant tensor reduced to one index in dimensions that count samples."""
        tensor = self.value(argument)
        if not isinstance(argument, torch.fx.Node):
            return tensor
        found = reduced(self.shape(argument), tensor)
        if found is not None and (other := self._for_other_samples(argument)) is not None:
            of_others = reduced(self.shape(argument), other)
            if of_others is not None and not equal(found, of_others):
                raise self.refuse(node, "takes something that depends on the number of samples, which is another in each micro-batch of gaccd")
            found = of_others
        if found is None:
            raise self.refuse(node, "takes something that differs by the place in the batch")
        return found

    def _for_other_samples(self, argument: Any) -> torch.Tensor | None:
        if argument not in self._others:
            self._others[argument] = for_other_samples(self, argument)
        return self._others[argument]

    def _repeat_sample_rows(self, node: Any, argument: Any) -> str:
        """The name of a constant one dimension of which counts rows of all samples, if values depend on the row only; otherwise ""."""
        if not isinstance(argument, torch.fx.Node):
            return ""
        tensor, sizes = self.value(argument), self.sizes(node, self.shape(argument))
        dims = [dim for dim, size in enumerate(sizes) if size < 0]
        if len(dims) != 1 or sizes[dims[0]] == -1 or not tensor.numel():
            return ""
        (dim,), rows = dims, -sizes[dims[0]]
        for split, counts_samples in (([-1, rows], dim), ([rows, -1], dim + 1)):
            parts = [one.unflatten(dim, split) for one in (tensor, self._for_other_samples(argument)) if one is not None]
            first = parts[0].narrow(counts_samples, 0, 1)
            if all(torch.equal(one, first.expand_as(one)) for one in parts):
                name = self.emit(node, Node("repeat", [self.constant(node, first)], {"size": [*sizes[:dim], *split, *sizes[dim + 1:]]}))
                return self.emit(node, Node("view", [name], {"size": sizes}))
        return ""

    def is_parameter(self, name: str) -> bool:
        return name in self.own or name in self.constants

    def is_constant(self, name: str) -> bool:
        return name in self.constants

    def tensor(self, name: str) -> torch.Tensor:
        """The tensor of a parameter or constant."""
        return self.constants[name] if name in self.constants else self.own[name]

    def shapes_by_name(self) -> dict[str, list[int]]:
        """The sizes of the values of PyTorch's nodes by name; -k means k times the number of samples."""
        shapes: dict[str, list[int]] = {}
        for node, name in self._names.items():
            if isinstance(name, str) and isinstance(node.meta.get("val"), torch.Tensor) and name not in shapes:
                with contextlib.suppress(ExportError):
                    shapes[name] = self.sizes(node)
        return shapes

    def shape(self, argument: Any) -> list[Any]:
        sizes = argument.meta["val"].shape  # one that depends on values may be known by what follows, as a layer of its inputs
        return [int(size) if isinstance(size, torch.SymInt) and size.node.expr.is_number else size for size in sizes]

    def sizes(self, node: Any, shape: list[Any] | None = None) -> list[int]:
        """The sizes of the value of `node`; -k means k times the number of samples."""
        return [self._size(node, size) for size in (self.shape(node) if shape is None else shape)]

    def sibling(self, name: str, last: str) -> str:
        """The name of the tensor `last` in the same module; "" if there is none."""
        other = f"{name.rpartition('.')[0]}.{last}".lstrip(".")
        return other if other in self.own else ""

    def concrete_sizes(self, shape: list[Any]) -> list[int]:
        """The sizes for SAMPLES samples."""
        return [self._concrete_size(size) for size in shape]

    def _concrete_size(self, size: Any) -> int:
        return size if isinstance(size, int) else self.count_at(size, SAMPLES)

    def count_at(self, size: Any, samples: int) -> int:
        """A symbolic size for this number of samples."""
        return int(size.node.expr.subs(self._batch, samples))

    def _size(self, node: Any, size: Any) -> int:
        if isinstance(size, int):
            return size
        expression = size.node.expr
        if not expression.free_symbols <= self._batch.free_symbols:
            raise self.refuse(node, "has a size that depends on values; torch.repeat_interleave takes a known one as output_size")
        factor = expression / self._batch
        if not factor.is_Integer or factor < 1:
            raise self.refuse(node, f"has a size that is no multiple of the samples, {expression}")
        return -int(factor)

    def _add_placeholders(self) -> None:
        by_argument = {one.argument: one for one in self.inputs}
        specs = {spec.arg.name: spec for spec in self.program.graph_signature.input_specs}
        for node in self.program.graph.nodes:
            if node.op != "placeholder":
                continue
            spec = specs[node.name]
            if node.name in by_argument:
                self._names[node] = by_argument[node.name].name
                self.input_dependent.add(node)
                if not by_argument[node.name].example.is_floating_point():
                    self.ids[self._names[node]] = self._names[node]
                if self._batch is None:
                    self._batch = node.meta["val"].shape[0].node.expr
            elif spec.target in self._canonical and not self._is_constant(self._canonical[spec.target]):
                self._names[node] = self._canonical[spec.target]
            elif spec.target in self._canonical:
                self._names[node] = self.own[self._canonical[spec.target]].detach()
            elif spec.target in self.program.constants:
                self._names[node] = self.program.constants[spec.target]
            elif spec.target is None:  # used by checks at run time, as of inverses
                self._names[node] = Refused(self.refuse(node, "is no value"))
            else:  # a buffer that is not saved
                self._names[node] = dict(self.program.named_buffers())[spec.target]

    def _is_constant(self, name: str) -> bool:
        return name in self._buffers and name not in self._mutated

    def _needed(self, output: Any, skip_folded: bool = False) -> set[Any]:
        """The nodes that `output` depends on. skip_folded: without the operands of folded nodes."""
        needed, left = set(), [output]
        while left:
            node = left.pop()
            if node not in needed:
                needed.add(node)
                left += [] if skip_folded and self._is_folded(node) else node.all_input_nodes
        return needed

    def needed_calls(self) -> list[Any]:
        """The operations of PyTorch that the output depends on, in their order."""
        needed = self._needed(self.output_node)
        return [node for node in self.program.graph.nodes if node.op == "call_function" and node in needed]

    def required_calls(self, output: Any) -> list[Any]:
        """The operations that compute the value of `output`, without folded ones."""
        return [node for node in self._needed(output, skip_folded=True) if node.op == "call_function"]

    def required_inputs(self, output: Any) -> list[Any]:
        """The inputs of the model that `output` depends on; [] if it also depends on weights or random numbers."""
        needed = self._needed(output, skip_folded=True)
        names = {one.name for one in self.inputs}
        given = [node for node in needed if node.op == "placeholder" and isinstance(self._names[node], str)]
        random = any(is_random(node) for node in needed)
        return [] if random or any(self._names[node] not in names for node in given) else given

    def evaluate(self, output: Any, given: dict[Any, torch.Tensor]) -> torch.Tensor:
        """The value of `output` for these inputs of SAMPLES samples: all of required_inputs()."""
        values: dict[Any, Any] = dict(given)
        needed = self._needed(output, skip_folded=True)
        for node in self.program.graph.nodes:
            if node in needed and node not in values:
                values[node] = self._names[node] if self._is_folded(node) else node.target(
                    *torch.fx.map_arg(node.args, values.get), **torch.fx.map_arg(node.kwargs, values.get))
        return values[output]

    def _check_changes(self) -> None:
        """Refuses changes of saved buffers other than those of batch norms."""
        changes = self.program.graph_signature.buffers_to_mutate
        for node in self.program.graph.nodes:
            name = self._canonical.get(changes.get(node.name, ""), "")
            counts = name.endswith("num_batches_tracked") and self.sibling(name, "running_mean")
            if name and not counts and not any("batch_norm" in str(one.target) for one in node.all_input_nodes):
                raise self.refuse(node, f"changes the buffer {name!r}; gaccd changes running statistics of batch norms alone; leave it "
                                        "out, or register it with persistent=False")

    def _check_buffers(self, node: Any) -> None:
        """Refuses reads of buffers that forward changes, because they are not constant."""
        targets = self.program.graph_signature.inputs_to_buffers
        changed = [targets[one.name] for one in node.all_input_nodes if targets.get(one.name) in self._mutated]
        if changed and "batch_norm" not in str(node.target):
            raise self.refuse(node, f"takes the buffer {changed[0]!r}, which forward changes; gaccd changes running statistics of "
                                    "batch norms alone, so give what changes as an input")

    def _check_numbers(self, node: Any) -> None:
        """Refuses the number of samples as a value, as in y / x.shape[0]; sizes and torch.arange may depend on it."""
        if not hasattr(node.target, "_schema") or "arange" in str(node.target):
            return
        schema = node.target._schema.arguments
        given = [*zip(schema, node.args), *((one, node.kwargs[one.name]) for one in schema if one.name in node.kwargs)]
        for one, value in given:
            counts = isinstance(value, torch.fx.Node) and isinstance(value.meta.get("val"), (torch.SymInt, torch.SymFloat))
            if counts and any(kind in str(one.type) for kind in ("Tensor", "number", "float")):
                raise self.refuse(node, "computes with the number of samples, which is another in each micro-batch of gaccd; an update "
                                        "is a sum over samples")

    def _is_folded(self, node: Any) -> bool:
        return isinstance(self._names.get(node), (torch.Tensor, int, float))

    def will_be_folded(self, node: Any) -> bool:
        """Whether `node` depends on constants only; it may not have been converted yet."""
        return not any(one.op == "placeholder" and isinstance(self._names[one], str) for one in self._needed(node, skip_folded=True))

    def depends_on_trained(self, node: Any) -> bool:
        return any(one.op == "placeholder" and isinstance(self._names.get(one), str) and
                   self._names[one] in self.own and self.own[self._names[one]].requires_grad
                   for one in self._needed(node))

    def _convert_nodes(self, convert: Any) -> str:
        from .export_convert import rows_name
        from .export_fusions import fuse
        outputs = [spec.arg.name for spec in self.program.graph_signature.output_specs
                   if spec.kind.name == "USER_OUTPUT"]
        if len(outputs) > 1:
            named = torch.utils._pytree.tree_unflatten(outputs, self.program.call_spec.out_spec)
            found = [named[one] for one in PREDICTIONS if isinstance(named.get(one), str)] if isinstance(named, Mapping) else []
            outputs = found[:1] or outputs
        if len(outputs) != 1:
            raise ExportError(f"expected a model with one output, the prediction, or {PREDICTIONS[0]!r} among others, found {len(outputs)}; "
                              "aux_logits=False, where there is one, or a module around it that gives one, as model(x)['out'] is")
        (output,) = [node for node in self.program.graph.nodes if node.name == outputs[0]]
        self.output_node = output
        for node in self.needed_calls():
            self._check_buffers(node)
            self._check_numbers(node)
            made = self._fold(node)
            if made is None:
                made = self._convert(convert, node)
            else:
                self.folded += 1
            if isinstance(made, (Node, str)) and is_discrete(node) and not all(map(is_discrete, node.all_input_nodes)) and (
                    self.depends_on_trained(node)):  # a gradient of 0 would become NaN where a root or logarithm has an infinite one
                made = Node("detach", [made if isinstance(made, str) else self.emit(node, made)], {})
            if isinstance(made, Node):
                self._names[node] = self._new_name(node.name)
                self.nodes.append((self._names[node], made, source_location(node)))
            else:
                self._names[node] = made
            if self._draws_for_samples(node) or (
                    not self._is_folded(node) and self.input_dependent.intersection(node.all_input_nodes)):
                self.input_dependent.add(node)
        name = rows_name(self, output, output)
        if len(self.shape(output)) == 1:  # one value per sample
            name = self.emit(output, Node("view", [name], {"size": [*self.sizes(output), 1]}))
        fuse(self)
        self._remove_unused(name)
        return name

    def _convert(self, convert: Any, node: Any) -> Any:
        if isinstance(node.meta.get("val"), torch.Tensor) and any(isinstance(size, int) and size == 0 for size in self.shape(node)):
            return Refused(self.refuse(node, "has no values"))
        try:
            return convert(self, node)
        except Exception as unexpected:
            error = unexpected if isinstance(unexpected, ExportError) else self.refuse(
                node, f"is called in a way that the exporter does not know ({type(unexpected).__name__}: {unexpected})")
            if not self.required_inputs(node):
                raise error from unexpected
            return Refused(error)

    def _remove_unused(self, output: str) -> None:
        """Removes nodes and constants that are not used, such as masks that a fused operation replaced."""
        used, kept = {output}, []
        for name, node, source in reversed(self.nodes):
            if name in used:
                used.update(node.inputs)
                kept.append((name, node, source))
        self.nodes = kept[::-1]
        self.constants = {name: tensor for name, tensor in self.constants.items() if name in used | self._kept_constants}

    def _fold(self, node: Any) -> Any:
        """The constant value of the node; None: it depends on data, parameters or random numbers."""
        found = node.meta.get("val")
        if isinstance(found, (int, float, bool)):
            return found
        if isinstance(found, torch.SymInt):
            if not found.node.expr.free_symbols <= self._batch.free_symbols:
                return Refused(self.refuse(node, "is a size that depends on values"))
            return self._concrete_size(found)
        arguments = [self.value(one) for one in node.all_input_nodes]
        if is_random(node) or not all(isinstance(one, (torch.Tensor, int, float, list, tuple)) for one in arguments):
            return None
        if any(isinstance(part, str) for one in arguments if isinstance(one, (list, tuple)) for part in one):
            return None
        made = node.target(*torch.fx.map_arg(node.args, self.value), **torch.fx.map_arg(node.kwargs, self.value))
        return made.zero_() if "empty" in str(node.target) else made  # uninitialised: overwritten later

    def is_kept(self, name: str) -> bool:
        """Whether the tensor is a buffer or an unused parameter, which keep their values."""
        return name in self._buffers or not any(name in node.inputs for _, node, _ in self.nodes)

    def buffers_in_constants(self) -> set[str]:
        """Saved buffers that the output depends on: calls with their values are folded, so other values have no effect."""
        targets = self.program.graph_signature.inputs_to_buffers
        names = {self._canonical.get(targets.get(node.name, ""), "") for node in self._needed(self.output_node)}
        return {name for name in names if self._is_constant(name)}

    def unused(self) -> dict[str, torch.Tensor]:
        """Trainable parameters without a gradient: the output does not depend on them, or by integers and masks alone; they keep their values."""
        return {name: tensor for name, tensor in self.own.items() if tensor.requires_grad and not self._has_gradient(name)}

    def kept(self) -> list[str]:
        """Buffers that forward changes and the output does not depend on, as the statistics of an auxiliary head."""
        return sorted(name for name in self._mutated if not any(name in node.inputs for _, node, _ in self.nodes))

    def is_frozen(self, name: str) -> bool:
        return not self.own[name].requires_grad or not self._has_gradient(name)

    def _has_gradient(self, name: str) -> bool:
        return name in self._reached and not self.is_kept(name)

    def _reached_by_gradients(self) -> set[Any]:
        """The names of what the output depends on by floating-point values."""
        reached, left = set(), [self.output_node]
        while left:
            node = left.pop()
            if node not in reached and not is_discrete(node) and not is_detached(node) and not takes_shape_alone(node):
                reached.add(node)
                left += node.all_input_nodes
        return {self._names[node] for node in reached if node.op == "placeholder" and isinstance(self._names[node], str)}

    def _check_weights(self) -> None:
        for name, tensor in self.own.items():
            if tensor.isnan().any() or (isinstance(tensor, torch.nn.Parameter) and tensor.isinf().any()):
                raise ExportError(f"{name}: expected finite values, found {'NaN' if tensor.isnan().any() else 'infinite ones'}")
            if tensor.dtype != torch.float32 and name not in self._buffers:
                raise ExportError(f"{name}: expected values of float32, found {tensor.dtype}; export model.float()")
            if not tensor.is_floating_point() and not torch.equal(tensor.float().to(tensor.dtype), tensor):
                raise ExportError(f"{name}: a buffer of {tensor.dtype} with values that float32 does not hold; the trained weights would bring others; "
                                  "register it with persistent=False")

    # Content of the exported files.

    def weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        for name, tensor in self.own.items():
            # gaccd reads finite values alone; of buffers, infinite ones become the largest.
            yield name, tensor if name.endswith("num_batches_tracked") else tensor.float().clamp(-MAX_FLOAT, MAX_FLOAT)

    def min_table_rows(self, one: Input) -> int:
        """Number of rows of the smallest embedding table that reads this input, an upper bound of its ids; 0: there is none."""
        return min((int(self.own[node.inputs[1]].shape[0]) for _, node, _ in self.nodes if node.op.startswith("embedding")
                    and self.ids.get(node.inputs[0]) == one.name and node.inputs[1] in self.own), default=0)
