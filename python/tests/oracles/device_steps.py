"""Steps of executors with devices: GPUs, or emulated ones, which begin where the step arrives in an executor."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import machines
import torch
from device_fakes import LateStreams

from freshgo import errors
from freshgo._device.mover import Mover
from freshgo._factored import executor
from freshgo._factored.parameters import Parameters

_emulating = contextlib.ExitStack()


@dataclasses.dataclass
class DeviceStep:
    """A step whose batches must be on the device of the model."""

    step: Callable[[Any, Any], torch.Tensor]
    driver: Path | None
    """Of the emulator; None: there are GPUs."""
    left: int = 0
    """Bytes that an emulated device has free."""
    refuse: bool = False
    """Samplers have no memory to say which rows devices hold."""
    journal: Path | None = None
    """Where executors write what they do, in lines of an executor and one of ``sends``, ``step`` and ``deposits``."""

    def __call__(self, model: torch.nn.Module, batch: Any) -> torch.Tensor:
        if self.journal is not None:
            _note(self.journal, "step")
        if not isinstance(batch, dict):  # of a transform
            assert batch.n_id.device == next(model.parameters()).device
        return self.step(model, batch)

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrived, (self.step, self.driver, self.left, self.refuse, self.journal)


def _arrived(
    step: Callable[[Any, Any], torch.Tensor], driver: Path | None, left: int, refuse: bool, journal: Path | None
) -> DeviceStep:
    if driver is not None:
        os.environ |= {"FRESHGO_TEST_GPU": "emulator", "FRESHGO_EMULATED_DRIVER": str(driver)}
        machine = machines.find(driver.parent)
        assert isinstance(machine, machines.Emulator), machine
        _emulating.enter_context(machine.loading())
        LateStreams.left = left
    if refuse:
        opened = executor.open_native

        def refused(store: str, uuid: str, options: dict[str, Any]) -> Any:
            if options.get("held") is not None:
                raise errors.BudgetError("no memory for the places", 1)
            return opened(store, uuid, options)

        executor.open_native = refused
    if journal is not None:
        _noting(journal, Mover, "send", "sends")
        _noting(journal, Parameters, "deposit", "deposits")
    return DeviceStep(step, driver, left, refuse, journal)


def _noting(journal: Path, of: type, method: str, word: str) -> None:
    """Note each call of a method."""
    called = getattr(of, method)

    def noted(self: Any, *given: Any) -> Any:
        _note(journal, word)
        return called(self, *given)

    setattr(of, method, noted)


def _note(journal: Path, word: str) -> None:
    with journal.open("a") as file:
        file.write(f"{os.getpid()} {word}\n")
