"""The operators, registered with torch, and called past its dispatcher where nothing but the result counts.

A call of ``torch.ops`` with a derivative takes 57 µs, most of it Python of ``torch.library``; past the dispatcher it
takes 25. A step of a small batch is made of such calls, and on a GPU every step: there the device waits for the host.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from freshgo.errors import FreshgoError, InvalidArgumentError

_library: Any = torch.library.Library("freshgo", "DEF")  # type: ignore[no-untyped-call]

operators: Any = SimpleNamespace()
"""The operators by name: ``operators.sum(...)`` is ``torch.ops.freshgo.sum(...)``, and ``operators.sum.within(...)``
the same within a step of autograd, where nobody but a profiler looks."""

_PLAIN = {Tensor, nn.Parameter}
_VALUES = {type(None), int, float, bool}


def define(schema: str, run: Any, fake: Any, setup: Any = None, backward: Any = None) -> None:
    """Register an operator: its kernel, its shapes for tracing, what it keeps for its derivative, and that."""
    name = schema.partition("(")[0]
    backward = backward or never
    _library.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
    for key in ("CPU", "CUDA"):  # kernels looks where the tensors are
        _library.impl(name, run, key)
    torch.library.register_fake(f"freshgo::{name}", fake, lib=_library)
    torch.library.register_autograd(f"freshgo::{name}", backward, setup_context=setup, lib=_library)
    setattr(operators, name, _past_the_dispatcher(name, run, setup, backward))


def _past_the_dispatcher(name: str, run: Any, setup: Any, backward: Any) -> Callable[..., Any]:
    registered = getattr(torch.ops.freshgo, name).default

    def forward(ctx: Any, *args: Any) -> Any:  # with setup_context, apply inspects the signature at every call
        out = run(*args)
        if setup is not None:
            setup(ctx, args, out)
        return out

    members = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    derived: Any = type(name, (torch.autograd.Function,), members)

    def call(*args: Any) -> Any:
        if carries_tangents():
            return _transformed(registered, args)
        if _watched() or not all(map(_is_plain, args)):
            return registered(*args)
        if torch.is_grad_enabled() and any(isinstance(a, Tensor) and a.requires_grad for a in args):
            return derived.apply(*args)
        return run(*args)

    def within(*args: Any) -> Any:
        return registered(*args) if torch._C._autograd._profiler_enabled() else run(*args)

    call.within = within  # type: ignore[attr-defined]
    return call


def transformed() -> bool:
    """Whether somebody makes something else of what is called: a compiler, a tracer, a mode, a transform."""
    return (
        torch.compiler.is_compiling()
        or torch._C._len_torch_dispatch_stack() > 0
        or torch._C._are_functorch_transforms_active()
        or torch._C._get_tracing_state() is not None
    )


def carries_tangents() -> bool:
    """Whether a transform of ``torch.func`` or forward-mode differentiation runs, which our operators know nothing
    of."""
    return not torch.compiler.is_compiling() and (
        torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0
    )


def _transformed(registered: Any, args: tuple[Any, ...]) -> Any:
    """Call an operator within a transform, which may map it, but not differentiate it. Without an error a tangent would
    be lost."""
    refused = InvalidArgumentError(
        "the operators of freshgo.ops have no derivatives by transforms of torch.func and in forward mode: use "
        "torch.autograd.grad or backward(), or PyG's own layers, as those of freshgo.nn.accelerate do there"
    )
    if forward_ad._current_level >= 0 and any(isinstance(a, Tensor) and _has_tangent(a) for a in args):
        raise refused
    try:
        return registered(*args)
    except RuntimeError as error:
        if isinstance(error, FreshgoError):
            raise
        raise refused from error


def _has_tangent(tensor: Tensor) -> bool:
    return forward_ad.unpack_dual(tensor).tangent is not None  # type: ignore[no-untyped-call]


def _watched() -> bool:
    """Whether somebody looks at what is called, a profiler included."""
    return transformed() or torch._C._autograd._profiler_enabled()


def _is_plain(arg: Any) -> bool:
    """Whether an argument is a value, or a tensor of no other class with memory that kernels read."""
    kind = type(arg)
    return kind in _VALUES or (kind in _PLAIN and (arg.is_cpu or arg.is_cuda))


def never(ctx: Any, *grads: Tensor | None) -> NoReturn:
    """The derivative of a derivative. Without it torch would take zero, and only warn."""
    raise InvalidArgumentError(
        "the operators of freshgo.ops, and layers of freshgo.nn.accelerate, have no second derivatives, which a loss "
        "over gradients (create_graph=True) needs: use PyG's own layers for it; report.undo() restores them"
    )
