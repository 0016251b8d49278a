"""Training steps that are recorded once, as a CUDA graph, and replayed for every batch of the same sizes.

    eager:     copy batch -> forward -> loss -> backward -> optimizer, a launch for each operator
    recorded:  copy batch into the recorded one -> replay, one launch

A recording reads the memory that it was made with: one batch, whose tensors the next ones are copied into, parameters,
buffers, gradients and the optimiser's state. Whatever Python decided is recorded too. So a recording is used only while
all of it is as it was.
"""

from __future__ import annotations

import copy
import itertools
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from freshgo._args import checks
from freshgo._args.entry import entry
from freshgo._args.whole import mapped
from freshgo._batch.blocks import HeteroBlocks, edges_of, parts_of
from freshgo._batch.structure import Known, Transposed, first_in, recall, remember
from freshgo._traced.lines import line_of
from freshgo.errors import InvalidArgumentError

WARM = 3
"""Steps that are made before one is recorded: optimisers make their state in the first, libraries their handles."""


class Graphs(Protocol):
    """What recording takes of CUDA."""

    def apart(self) -> AbstractContextManager[Any]:
        """What is queued within goes to a side stream, as PyTorch asks for before a capture."""

    def record(self, step: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
        """Capture what ``step`` queues, and run nothing of it; return how to run it, and the tensor that it returns."""


class _CudaGraphs:
    def __init__(self, device: torch.device) -> None:
        self._side: torch.cuda.Stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    @contextmanager
    def apart(self) -> Iterator[None]:
        current = torch.cuda.current_stream(self._side.device)
        self._side.wait_stream(current)
        with torch.cuda.stream(self._side):
            yield
        current.wait_stream(self._side)

    def record(self, step: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
        graph = torch.cuda.CUDAGraph()
        # Threads of a loader copy batches and lock memory meanwhile.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            loss = step()
        return graph.replay, loss


def graphs(device: torch.device) -> Graphs:
    """Return the recorder of a device.

    Raises:
        InvalidArgumentError: the device is not a CUDA device.
    """
    if device.type != "cuda":
        raise InvalidArgumentError(f"record() needs a model on a CUDA device, its parameters are on {str(device)!r}")
    return _CudaGraphs(device)


@entry
class record:  # noqa: N801  (called as a function, like torch.no_grad)
    """A training step that is recorded once and then replayed, with one launch in place of hundreds.

        loader = Loader(store, [15, 10, 5], "train", batch_size=1024, shuffle=True, pad=True, device="cuda")
        optimizer = torch.optim.Adam(model.parameters(), lr=torch.tensor(0.01, device="cuda"), capturable=True)

        def loss(model, batch):
            out = model(batch.x, batch.edge_index, batch.num_sampled_nodes, batch.num_sampled_edges)
            return F.cross_entropy(out[: batch.batch_size], batch.y[: batch.batch_size])

        step = freshgo.nn.record(model, loss, optimizer)
        for batch in loader:
            total += step(batch)

    ``step(batch)`` clears gradients, computes the loss and its gradients, calls ``optimizer.step()``, and returns the
    loss, a scalar tensor on the device. The first three steps are eager; the next one is recorded, if its batch has
    the sizes of the one before. A batch of other sizes is trained on eagerly: one that exceeds the padding, or the last
    one of an epoch. Results are those of the eager loop.

    A step is recorded again, after an eager one, when something that the recording holds has changed: a number in
    ``optimizer.param_groups``; the memory of a parameter, of a buffer or of the optimiser's state; ``train()`` or
    ``eval()``; ``requires_grad``. Give a learning rate that a scheduler changes as a tensor, which each replay reads
    anew.

    Args:
        model (torch.nn.Module): on a CUDA device.
        loss: called as ``loss(model, batch)``; returns a scalar tensor. Whatever it computes must be queued on the
            device: ``item()``, ``print`` of a tensor and ``if`` of one make the host wait, which cannot be recorded.
        optimizer (torch.optim.Optimizer): of PyTorch, over the parameters of the model; with ``capturable=True`` where
            it has this option, and SGD with ``fused=True`` where its learning rate is a tensor. Gradients are clipped
            by ``optimizer.register_step_pre_hook``.

    Raises:
        InvalidArgumentError: the model is not on a CUDA device; the optimiser is not capturable; a batch is not one of
            ``Loader(pad=True)``, or has ``edge_index`` as PyG's ``EdgeIndex``; the step cannot be recorded: the
            message names the line that the recording ended at.
    """

    replayed: int
    """Steps that were replayed."""
    eager: int
    """Steps that were not."""

    def __init__(
        self, model: nn.Module, loss: Callable[[nn.Module, Any], Tensor], optimizer: torch.optim.Optimizer
    ) -> None:
        parameters = [*model.parameters()]
        if not parameters:
            raise InvalidArgumentError("record() needs a model with parameters, this one has none")
        for group in optimizer.param_groups:
            if group.get("capturable") is False:
                name = type(optimizer).__name__
                raise InvalidArgumentError(
                    f"record() needs an optimizer that a CUDA graph can hold: make it by {name}(..., capturable=True)"
                )
        self._graphs = graphs(parameters[0].device)
        self._model, self._loss, self._optimizer = model, loss, optimizer
        self._last: tuple[list[Any], _Settings] | None = None  # sizes and settings of the step before
        self._recorded: _Recorded | None = None
        self.replayed = self.eager = 0

    def __call__(self, batch: Any) -> Tensor:
        """Train on a batch.

        Returns:
            The loss: a scalar, without its graph.
        """
        sizes, tensors = _sizes(batch)
        settings = self._settings()
        last, self._last = self._last, (sizes, settings)
        found = self._recorded
        if found is not None and found.settings != settings:
            if found.sizes == sizes:
                _warn(found.settings.numbers, settings.numbers)
            self._recorded = found = None
        if found is not None and found.sizes == sizes:
            self.replayed += 1
            return found.run(tensors)
        # A step that makes state of the optimiser is another one than those that follow.
        if self.eager < WARM or last != (sizes, settings):
            self.eager += 1
            with self._graphs.apart():
                return self._step(batch).detach()
        self._recorded = None  # its memory is free for the next one
        self._recorded = found = self._record(batch, sizes, settings)
        self.replayed += 1
        return found.run(None)

    def _step(self, batch: Any) -> Tensor:
        self._optimizer.zero_grad(set_to_none=True)
        loss = self._loss(self._model, batch)
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            got = f"a tensor of shape {list(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
            raise InvalidArgumentError(f"loss(model, batch) must return a scalar tensor, got {got}")
        torch.autograd.backward(loss)
        self._optimizer.step()
        return loss

    def _record(self, batch: Any, sizes: list[Any], settings: _Settings) -> _Recorded:
        held = _copied(batch)
        try:
            replay, loss = self._graphs.record(lambda: self._step(held).detach())
        except RuntimeError as error:
            self._optimizer.zero_grad(set_to_none=True)  # they lie in the memory of the recording
            raise _refused(error) from error
        grads = [(parameter, parameter.grad) for parameter in self._model.parameters()]
        return _Recorded(held, sizes, settings, grads, replay, loss)

    def _settings(self) -> _Settings:
        parameters = [*self._model.parameters()]
        tensors = [*parameters, *self._model.buffers()]
        numbers: dict[str, Any] = {}
        for number, group in enumerate(self._optimizer.param_groups):
            for name, value in group.items():
                if name == "params":
                    tensors += value
                elif isinstance(value, Tensor):
                    tensors.append(value)
                else:
                    numbers[f"{name!r} of parameter group {number}"] = value
        for state in self._optimizer.state.values():
            tensors += [value for value in state.values() if isinstance(value, Tensor)]
        memory = [tensor.data_ptr() for tensor in tensors]
        grads = [parameter.requires_grad for parameter in parameters]
        modes = [module.training for module in self._model.modules()]
        return _Settings(numbers, (memory, grads, modes))


class _Settings(NamedTuple):
    """What a recording holds beside the batch."""

    numbers: dict[str, Any]
    """Of the optimiser, by what they are called in messages."""
    others: tuple[list[int], list[bool], list[bool]]
    """Where tensors lie, which parameters have gradients, and which modules train."""


class _Recorded:
    """A recording, with the batch that it reads."""

    def __init__(
        self,
        batch: Any,
        sizes: list[Any],
        settings: _Settings,
        grads: list[tuple[nn.Parameter, Tensor | None]],
        replay: Callable[[], None],
        loss: Tensor,
    ) -> None:
        self.sizes, self.settings = sizes, settings
        self._batch, self._tensors = batch, _sizes(batch)[1]
        self._grads, self._replay, self._loss = grads, replay, loss

    def run(self, tensors: list[Tensor] | None) -> Tensor:
        """Run it over these tensors of a batch; None: over those that it was recorded with."""
        if tensors is not None:
            with torch.no_grad():
                torch._foreach_copy_(self._tensors, tensors)
        for parameter, grad in self._grads:  # an eager step has made others
            parameter.grad = grad
        self._replay()
        return self._loss.clone()


def _sizes(batch: Any) -> tuple[list[Any], list[Tensor]]:
    """Return what batches must have in common to share a recording, and the tensors that they differ in."""
    if not hasattr(batch, "padded"):
        raise InvalidArgumentError(
            "record() needs batches of one size, as Loader(pad=True) makes them; this one has no attribute 'padded'"
        )
    sizes: list[Any] = []
    tensors: list[Tensor] = []

    def note(value: Any) -> None:
        if isinstance(value, Tensor):
            if type(value) is not Tensor:
                raise InvalidArgumentError(
                    f"record() needs plain tensors, the batch has a {type(value).__name__}: make it with "
                    "edge_index='tensor'"
                )
            sizes.append((value.shape, value.dtype, value.device))
            tensors.append(value)
        elif isinstance(value, list | tuple | dict):
            sizes.append((type(value), len(value)))
            for one in itertools.chain.from_iterable(value.items()) if isinstance(value, dict) else value:
                note(one)
        else:
            sizes.append(value)

    for store in _stores(batch):
        for name, value in store.items():
            sizes.append(name)
            note(value)
    for edges in edges_of(batch).values():
        known = recall(edges)
        if known is not None:
            note([known.ptr, known.ends, None if known.transposed is None else [*known.transposed]])
    return sizes, tensors


def _stores(batch: Any) -> list[Any]:
    """What a batch and its types have, by name."""
    if hasattr(batch, "stores"):  # of PyG
        stores: list[Any] = batch.stores
        return stores
    if isinstance(batch, HeteroBlocks):
        return [*map(vars, parts_of(batch).values()), batch._whole]  # type: ignore[attr-defined]
    return [vars(batch)]


def _copied(batch: Any) -> Any:
    """A copy of a batch in memory of its own, with what is known of its edges. Nothing is kept that layers have made
    of them: a recording must make it anew for each batch."""
    if hasattr(batch, "apply"):  # PyG's changes what it is called of
        made = (copy.copy(batch) if hasattr(batch, "stores") else batch).apply(torch.clone)
    else:
        made = type(batch)(**mapped(vars(batch), torch.clone))
    before, parts = edges_of(batch), parts_of(made)
    for key, after in edges_of(made).items():
        known = recall(before[key])
        if known is not None:
            ptr = None if known.ptr is None else known.ptr.clone()
            transposed = None if known.transposed is None else Transposed(*map(torch.clone, known.transposed))
            first = first_in(before[key], parts[key], parts[key[2]], parts[key[0]])
            remember(after, Known(after, ptr, transposed, known.ends, first=first))
    return made


def _warn(before: dict[str, Any], now: dict[str, Any]) -> None:
    """Say which numbers are recorded anew, as a loop may change them in each step."""
    changed = [f"{name} from {before[name]} to {now[name]}" for name in before if before[name] != now.get(name)]
    if changed and len(before) == len(now):
        warnings.warn(
            f"a step is recorded again, as the optimizer changed {' and '.join(changed)}; what is a tensor, such as "
            "lr=torch.tensor(0.01, device='cuda'), may change without that",
            UserWarning,
            stacklevel=checks.caller(),
        )


def _refused(error: RuntimeError) -> InvalidArgumentError:
    cause: BaseException = error.__context__ or error  # the end of the capture fails as well
    line, message = line_of(cause, "_record", of_pyg=True), str(cause).partition("\n")[0]
    return InvalidArgumentError(
        f"{'the step' if line is None else line} cannot be recorded: {message}. Nothing may wait for the device: no "
        "item(), no print() and no `if` of a tensor"
    )
