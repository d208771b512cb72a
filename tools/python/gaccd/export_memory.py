"""Which values of a graph of torch.export share memory, and what changes them in place; before decompositions."""

from __future__ import annotations

import operator
from typing import Any, Iterator

import torch

from .export_types import is_detached, is_discrete


def _arguments(node: Any, writes: bool) -> Iterator[Any]:
    """The arguments of an operation that it writes to, or whose memory its result may share."""
    schema = getattr(node.target, "_schema", None)
    for place, one in enumerate(schema.arguments if schema else ()):
        given = node.args[place] if place < len(node.args) else node.kwargs.get(one.name)
        if one.alias_info and isinstance(given, torch.fx.Node) and (one.alias_info.is_write or not writes):
            yield given


def changed_by(node: Any) -> list[Any]:
    """Values that the operation changes in place."""
    return [one for one in _arguments(node, True) if not is_discrete(one)]


def _views_of(node: Any) -> list[Any]:
    """The value, that of which it is a view, and so on."""
    found = [node]
    while True:
        one = found[-1]
        below = next(_arguments(one, False), None)
        if one.target is operator.getitem and hasattr(one.args[0].target, "_schema"):  # as of chunk; no_grad has none
            below = one.args[0]
        if below is None:
            return found
        found.append(below)


def memory_of(node: Any) -> Any:
    """The value whose memory this one is or is a view of."""
    return _views_of(node)[-1]


def changes_outside(region: Any) -> list[tuple[Any, Any]]:
    """The operations of a no_grad that change values from outside of it in place, and these values."""
    inside = region.graph.owning_module.get_submodule(region.args[1].target).graph if len(region.args) > 1 else None
    nodes = list(inside.nodes) if inside else []
    outer = dict(zip((one for one in nodes if one.op == "placeholder"), region.args[2:]))
    return [(one, outer[memory_of(value)]) for one in nodes for value in changed_by(one) if memory_of(value) in outer]


def detach_changed(node: Any) -> Any:
    """Lets `node` change a copy of what detach() gives, as the value below keeps its gradient. Returns an operation that
    reads the memory otherwise, and would not see the change; None: there is none."""
    for one in changed_by(node):
        detached = next((view for view in _views_of(one) if is_detached(view)), None)
        if detached is None:
            continue
        after = list(node.graph.nodes)
        for user in after[after.index(node) + 1:]:
            if any(memory_of(given) is memory_of(one) and detached not in _views_of(given) for given in user.all_input_nodes):
                return user
        with node.graph.inserting_after(detached):
            copy = node.graph.call_function(torch.ops.aten.clone.default, (detached,))
        copy.meta = dict(detached.meta)
        detached.replace_all_uses_with(copy, delete_user_cb=lambda user, made=copy: user is not made)
    return None
