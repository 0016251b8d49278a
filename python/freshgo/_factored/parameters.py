"""A model's parameters and gradients in memory that processes share.

There are ``staleness + 1`` copies of parameters and buffers. Version v lies in copy v modulo their number, which is
overwritten by the version that many updates later: by then every batch that was trained with v is part of an update.
Each gradient that may be waiting for its update has a place of its own, with the buffers after its forward pass. So
nobody waits for a lock, and a process that is killed holds none.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence

import torch
from torch import nn

from freshgo.errors import InvalidArgumentError

_ALIGN = 64


class Parameters:
    """The shared memory, and how the parameters and buffers of a model of this process lie in it."""

    def __init__(self, model: nn.Module, versions: int, slots: int, fd: int | None = None) -> None:
        """Make the memory, or map what another process has made for the same model."""
        self._parameters, buffers = list(model.parameters()), list(model.buffers())
        if any(isinstance(p, nn.UninitializedParameter) for p in self._parameters):
            raise InvalidArgumentError(
                "model has uninitialized parameters: call it once before, so that they have shapes"
            )
        self._tensors = [*self._parameters, *buffers]
        self._versions = versions
        self._offsets, end = [], 0
        for tensor in self._tensors:
            self._offsets.append(end)
            end += -(-tensor.numel() * tensor.element_size() // _ALIGN) * _ALIGN
        n_bytes = max(_ALIGN, end * (versions + slots))
        if fd is None:
            self.fd = os.memfd_create("freshgo-parameters", os.MFD_CLOEXEC)
            os.ftruncate(self.fd, n_bytes)
        else:
            self.fd = fd
        self._memory = torch.frombuffer(mmap.mmap(self.fd, n_bytes), dtype=torch.uint8)
        self._copies = [self._views(i * end) for i in range(versions + slots)]

    def _views(self, at: int) -> list[torch.Tensor]:
        views = []
        for offset, tensor in zip(self._offsets, self._tensors, strict=True):
            n_bytes = tensor.numel() * tensor.element_size()
            part = self._memory[at + offset : at + offset + n_bytes]
            views.append(part.view(tensor.dtype).view(tensor.shape))
        return views

    @torch.no_grad()
    def publish(self, version: int) -> None:
        """Write the model's parameters and buffers for others."""
        for view, tensor in zip(self._copies[version % self._versions], self._tensors, strict=True):
            view.copy_(tensor)

    @torch.no_grad()
    def fetch(self, version: int) -> None:
        """Give the model the parameters and buffers of a version."""
        for view, tensor in zip(self._copies[version % self._versions], self._tensors, strict=True):
            tensor.copy_(view)

    @torch.no_grad()
    def deposit(self, slot: int) -> list[int]:
        """Write the gradients of the model's parameters, and its buffers. Returns which parameters have a gradient."""
        views = self._copies[self._versions + slot]
        present = []
        for i, parameter in enumerate(self._parameters):
            if parameter.grad is not None:
                if parameter.grad.layout != torch.strided:
                    raise InvalidArgumentError(
                        f"parameter {i} of model, of shape {list(parameter.shape)}, has a sparse gradient, expected a "
                        "dense one, "
                        "as nn.Embedding(sparse=False) gives"
                    )
                views[i].copy_(parameter.grad)
                present.append(i)
        for view, buffer in zip(views[len(self._parameters) :], self._tensors[len(self._parameters) :], strict=True):
            view.copy_(buffer)
        return present

    @torch.no_grad()
    def collect(self, slots: Sequence[int], present: Sequence[Sequence[int]]) -> None:
        """Give the model's parameters the mean of the gradients in some places, and its buffers those of the first, as
        DistributedDataParallel does."""
        copies = [self._copies[self._versions + slot] for slot in slots]
        for i, parameter in enumerate(self._parameters):
            grads = [copy[i] for copy, there in zip(copies, present, strict=True) if i in there]
            if not grads:
                parameter.grad = None
                continue
            mean = grads[0].clone()
            for grad in grads[1:]:
                mean += grad
            parameter.grad = (mean if len(slots) == 1 else mean / len(slots)).to(parameter.device)
        for i in range(len(self._parameters), len(self._tensors)):
            self._tensors[i].copy_(copies[0][i])
