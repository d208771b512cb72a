"""Refuses gradients that a model defines itself: gaccd only has the gradients of the operations of forward."""

from __future__ import annotations

import contextlib
import operator
import traceback
from typing import Any, Iterator

import torch

from .export_memory import changed_by, changes_outside, detach_changed, memory_of
from .export_types import SAMPLES, ExportError, is_discrete, own_line, source_location

TRIED = 3  # draws of values


def _line() -> str:
    return own_line(traceback.extract_stack()) or "an unknown line"


def _is_torch_module(name: str) -> bool:
    return name == "torch" or name.startswith("torch.")


class _Context:
    """Takes what forward keeps for backward."""
    def save_for_backward(self, *_: torch.Tensor) -> None:
        pass

    def set_materialize_grads(self, _: bool) -> None:
        pass


def _forward(cls: Any, args: Any) -> Any:
    own = cls.setup_context is torch.autograd.Function.setup_context
    return cls.forward(*([_Context()] if own else []), *args)


def _has_gradient_of_forward(cls: Any, args: Any) -> bool:
    """Whether backward gives the gradients of the operations of forward, tried for values and gradients from 1e-9 to 1e9."""
    def drawn(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        sizes = [size if isinstance(size, int) else SAMPLES for size in value.shape]
        return (10 ** (18 * torch.rand(sizes, generator=random).double() - 9)) * (torch.rand(sizes, generator=random) - 0.5).sign()
    random, tensors = torch.Generator().manual_seed(0), [one for one in args if isinstance(one, torch.Tensor)]
    if not tensors or not all(one.is_floating_point() for one in tensors) or any(isinstance(one, torch.SymInt) for one in args):
        return False
    for _ in range(TRIED):
        given = [drawn(one) for one in args]
        inputs = [one.requires_grad_() for one in given if isinstance(one, torch.Tensor)]
        y, expected = cls.apply(*given), _forward(cls, given)
        gradient = drawn(expected)
        for one, other in zip((y, *torch.autograd.grad(y, inputs, gradient)), (expected, *torch.autograd.grad(expected, inputs, gradient))):
            if not torch.allclose(one, other, rtol=1e-4, atol=1e-12 * float(other.detach().abs().max())):
                return False
    return True


@contextlib.contextmanager
def refuse_own_gradients(model: torch.nn.Module) -> Iterator[None]:
    """Raises ExportError if forward calls a torch.autograd.Function or registers a gradient hook in this context."""
    for name, module in model.named_modules():
        if module._backward_hooks or module._backward_pre_hooks:
            raise ExportError(f"{name or 'the model'}: has a backward hook, which may change gradients; gaccd calls none. Remove it first")
        if getattr(module, "max_norm", None) is not None:
            raise ExportError(f"{name or 'the model'}: max_norm changes rows of the table in each forward, which gaccd does not; "
                              "limit what the embedding gives instead, without max_norm")
    for name, parameter in model.named_parameters():
        if parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None):
            raise ExportError(f"{name}: has a hook of its gradient, which may change it; gaccd calls none. Remove it first")
    apply, register_hook = torch.autograd.Function.__dict__["apply"], torch.Tensor.register_hook
    enter, leave = torch.inference_mode.__enter__, torch.inference_mode.__exit__
    enter_cast, leave_cast = torch.autocast.__enter__, torch.autocast.__exit__

    called: list[tuple[Any, Any, str]] = []  # functions with a backward of their own, their arguments, and the line

    def checked_apply(cls: type, *args: Any, **kwargs: Any) -> Any:
        if _is_torch_module(cls.__module__):
            return apply.__get__(None, cls)(*args, **kwargs)
        called.append((cls, args, _line()))
        try:
            return _forward(cls, args)
        except Exception as error:  # of many kinds, by the function
            raise _other_gradient(*called[-1]) from error

    def checked_hook(tensor: torch.Tensor, hook: Any) -> Any:
        if not _is_torch_module(getattr(hook, "__module__", None) or ""):
            raise ExportError(f"Tensor.register_hook: a hook may change the gradient; gaccd calls none; it is called at {_line()}")
        return register_hook(tensor, hook)

    def enter_no_grad(mode: Any) -> None:
        """Enters no_grad instead, because torch.export does not record inference_mode."""
        mode.no_grad = torch.no_grad() if mode.mode else contextlib.nullcontext()
        mode.no_grad.__enter__()

    def enter_autocast(cast: Any) -> Any:
        """Not one that is off, as torch.export loses a no_grad inside."""
        return enter_cast(cast) if cast._enabled else cast

    torch.autograd.Function.apply = classmethod(checked_apply)
    torch.Tensor.register_hook = checked_hook
    torch.inference_mode.__enter__ = enter_no_grad
    torch.inference_mode.__exit__ = lambda mode, *error: mode.no_grad.__exit__(*error)
    torch.autocast.__enter__ = enter_autocast
    torch.autocast.__exit__ = lambda cast, *error: leave_cast(cast, *error) if cast._enabled else None
    try:
        yield
    finally:
        torch.autograd.Function.apply = apply
        torch.Tensor.register_hook = register_hook
        torch.inference_mode.__enter__, torch.inference_mode.__exit__ = enter, leave
        torch.autocast.__enter__, torch.autocast.__exit__ = enter_cast, leave_cast
    for cls, args, line in called:
        try:
            same = _has_gradient_of_forward(cls, args)
        except Exception as error:  # of many kinds, by the function
            raise _other_gradient(cls, args, line) from error
        if not same:
            raise _other_gradient(cls, args, line)


def _other_gradient(cls: Any, _: Any, line: str) -> ExportError:
    return ExportError(f"{cls.__qualname__}: a torch.autograd.Function with a backward that is not the gradient of its forward, which gaccd "
                       f"cannot follow; write it with operations of PyTorch; it is called at {line}")


def gives_integers_alone(node: Any) -> bool:
    """Whether only integers and masks, which have no gradient, are computed from the value."""
    seen, left = set(), [node]
    while left:
        one = left.pop()
        if one.op == "output":
            return False
        if one not in seen and not is_discrete(one):
            seen.add(one)
            left += one.users
    return True


def _detach_outputs(region: Any) -> bool:
    """Detaches what no_grad computes; whether that can be done."""
    values = list(region.users)
    if not all(one.target is operator.getitem and all(user.op != "output" for user in one.users) for one in values):
        return False
    for one in values:
        if not is_discrete(one):
            with region.graph.inserting_after(one):
                detached = region.graph.call_function(torch.ops.aten.detach.default, (one,))
            detached.meta = dict(one.meta)
            one.replace_all_uses_with(detached, delete_user_cb=lambda user, made=detached: user is not made)
    return True


def detach_no_grad(model: torch.nn.Module, program: Any) -> None:
    """Detaches the outputs of no_grad, and refuses what stops gradients otherwise. Called before decompositions, which remove the marks."""
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    parameters, buffers = program.graph_signature.inputs_to_parameters, program.graph_signature.inputs_to_buffers
    spectral = any(type(one).__name__ in ("SpectralNorm", "_SpectralNorm")
                   for module in model.modules() for one in (module, *module._forward_pre_hooks.values()))
    depends: set[Any] = set()  # nodes that depend on trained parameters
    for node in list(program.graph.nodes):
        reads = [one for given in node.all_input_nodes for one in (given, memory_of(given))]
        if parameters.get(node.name) in trained or depends.intersection(reads):
            depends.add(node)
        if node not in depends:
            continue
        depends.update(map(memory_of, changed_by(node)))
        if str(node.target).startswith("aten.detach_."):
            raise _stopped("Tensor.detach_() of", "detach() gives a new value instead", node)
        if user := detach_changed(node):
            raise _changed(node, user)
        if "set_grad_enabled" not in str(node.target) or node.args[0] is not False:
            continue
        users = [one for one in program.graph.nodes if node in one.all_input_nodes]
        where = users[0] if users and not source_location(node) else node
        if spectral:
            raise _stopped("torch.no_grad() over", "spectral_norm changes its vectors in each forward; weight_norm of "
                           "torch.nn.utils.parametrizations does not", where)
        for one in [one for one, value in changes_outside(node) if memory_of(value).name not in buffers]:
            raise _changed(one, where)
        if len(node.args) < 2 or not _detach_outputs(node):
            raise _stopped("torch.no_grad() or inference_mode() over", "an output of forward needs a gradient (torch.utils.checkpoint: "
                           "use_reentrant=False)", where)


def _changed(node: Any, where: Any) -> ExportError:
    line = source_location(node) or source_location(where) or "an unknown line"
    return ExportError(f"{node.target}: changes a value in place in no_grad or through detach(), while its gradient "
                       f"remains as before the change; change a copy, .clone(), and use that; near {line}")


def _stopped(what: str, way: str, node: Any) -> ExportError:
    return ExportError(f"{what} a trained parameter or what depends on one: {way}; near {source_location(node) or 'an unknown line'}")
