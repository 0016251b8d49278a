"""Loaders for Lightning. Importing this module needs ``lightning`` or ``pytorch_lightning``."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from freshgo._args import checks
from freshgo._args.entry import entry
from freshgo._args.signatures import passes_on
from freshgo._args.size import available_memory
from freshgo._loader.engine import engine_of
from freshgo.errors import DTypeError, InvalidArgumentError, RankError
from freshgo.links import LinkLoader
from freshgo.loader import Loader
from freshgo.memory import MemoryBudget
from freshgo.options import Ranks
from freshgo.store import Store

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from freshgo._data.like import GraphLike
    from freshgo.options import ModuleOptions

__all__ = ["DataModule"]

_STAGES: dict[str, dict[str, Any]] = {
    "train": {"shuffle": True},
    "val": {},
    "test": {},
    "predict": {},
}
"""What a loader is given for each stage, unless the user says otherwise. Without ``uneven``, only training pads."""


def _base() -> type[Any]:
    """Return Lightning's class, from whichever of its two packages is installed."""
    for package in ("lightning.pytorch", "pytorch_lightning"):
        if importlib.util.find_spec(package.partition(".")[0]) is not None:
            base: type[Any] = importlib.import_module(package).LightningDataModule
            return base
    raise ImportError("freshgo.lightning needs Lightning: pip install lightning")


@entry
class DataModule(_base()):  # type: ignore[misc]  # whose type is known when it is imported
    """Loaders for the stages of a Lightning ``Trainer``, opened in each process when it asks for them.

        data = DataModule(store, [15, 10], {"train": "train", "val": "valid"}, batch_size=1024, memory="8GiB")
        trainer = lightning.Trainer(strategy="ddp", devices=2)
        trainer.fit(model, data)
        trainer.fit(model, data, ckpt_path="last.ckpt")  # goes on within the epoch, with the identical next batch

    Under DDP every process trains on the batches of its rank, with the same number of steps, and evaluates each seed of
    the other stages once. Lightning's checkpoints hold the position of the training loader. Lightning counts the steps
    of one process, so a checkpoint from within an epoch goes on with as many processes as it was saved by.

    With a CUDA device the loaders copy their batches to it ahead of the training, as with ``device=``. That of training
    has a ``device_cache``.

    Args:
        data: a store, or the path of one, or a graph in memory: as for :class:`Loader`. With ``strategy="ddp_spawn"``
            a path.
        num_neighbors: as for :class:`Loader`.
        inputs: what each stage iterates over: a mapping from ``"train"``, ``"val"``, ``"test"`` and ``"predict"`` to
            what the loader takes in its third place, such as the name of a split, ids, or None for every node. Stages
            that it lacks have no loader.
        loader: the class of the loaders, :class:`Loader` or :class:`LinkLoader`.
        per_stage: options for single stages, such as ``{"val": {"batch_size": 4096}}``; they override the others.
        memory: the budget of each process, which its loaders share as a :class:`MemoryBudget`: the stage that runs has
            it. To validate within an epoch without opening the training loader again, give both stages parts of one:
            ``per_stage={"train": {"memory": budget.at_most("6GiB")}, ...}``. None is half of what is available, divided
            among the ranks of this host; for a graph in memory, what each loader chooses.
        **options: of all loaders. By default ``"train"`` has ``shuffle=True``, unless it has a ``sampler`` or an
            ``input_weight`` or the trainer has ``overfit_batches``, and the ranks of the other stages
            have ``uneven="join"``. The loader of ``"train"`` has ``embeddings``, and trains these tables; in the other
            stages ``emb(batch.n_id)`` reads the rows as they are then.

    Raises:
        InvalidArgumentError, DTypeError: ``inputs`` or ``per_stage`` name no stage. Options are checked when a loader
            is opened, which raises what it raises.
        RankError: a checkpoint from within an epoch is loaded by another number of processes.
    """

    @passes_on(
        Loader.__init__, LinkLoader.__init__, without=("data", "num_neighbors", "input_nodes", "edge_label_index")
    )
    def __init__(
        self,
        data: GraphLike,
        num_neighbors: Any,
        inputs: Mapping[str, Any],
        *,
        loader: Callable[..., Loader] = Loader,
        per_stage: Mapping[str, ModuleOptions] | None = None,
        **options: Unpack[ModuleOptions],
    ) -> None:
        super().__init__()
        for name, of in (("inputs", inputs), ("per_stage", per_stage or {})):
            if not isinstance(of, Mapping):
                raise DTypeError(f"{name} must be a mapping by stage, got {checks.shown(of)}")
            for stage in of:
                checks.choice(f"a stage of {name}", stage, tuple(_STAGES))
        if not inputs:
            raise InvalidArgumentError(f"inputs must name at least one of the stages {', '.join(_STAGES)}")
        self._data, self._num_neighbors, self._inputs = data, num_neighbors, dict(inputs)
        self._class, self._options = loader, dict[str, Any](options)
        self._per_stage = {stage: dict[str, Any](of) for stage, of in (per_stage or {}).items()}
        self._memory: int | str | MemoryBudget | None = self._options.pop("memory", None)
        self._open: dict[str, Loader] = {}
        self._overfits = False  # whether the open loader of "train" was opened for overfit_batches
        self._saved: Mapping[str, Any] = {}
        for stage in _STAGES:
            if stage not in inputs:  # so that Lightning sees no loader of this stage
                setattr(self, f"{stage}_dataloader", None)

    def loader(self, stage: str) -> Loader:
        """Return the loader of a stage, which is opened at the first call.

        Raises:
            InvalidArgumentError: there is no such stage, or ``inputs`` lacks it.
        """
        checks.choice("stage", stage, tuple(self._inputs))
        if stage not in self._open:
            self._open[stage] = self._opened(stage)
        return self._open[stage]

    def close(self) -> None:
        """Close all loaders. The next call for one opens it anew, at its first epoch."""
        while self._open:
            self._open.popitem()[1].close()

    def _opened(self, stage: str) -> Loader:
        given: dict[str, Any] = {**self._options, **self._per_stage.get(stage, {})}
        if stage != "train":  # whichever loader Lightning opens first: the other stages read the rows that it trains
            given.pop("embeddings", None)
        defaults = dict(_STAGES[stage])
        if given.get("sampler") is not None or given.get("input_weight") is not None:
            defaults.pop("shuffle", None)
        if stage == "train":
            self._overfits = self._overfitting()
            if self._overfits:  # the same batches in every epoch, as Lightning makes of a DataLoader
                defaults.pop("shuffle", None)
        device = getattr(getattr(self.trainer, "strategy", None), "root_device", None)
        if device is not None and device.type == "cuda":
            defaults["device"] = device
            if stage != "train":  # whose cache would take from the training's
                defaults["device_cache"] = None
        options = {**defaults, "memory": self._budget(), **given}
        ranks = Ranks() if options.get("ranks") is None else options["ranks"]
        if stage != "train" and isinstance(ranks, Ranks) and ranks.uneven is None:
            options["ranks"] = dataclasses.replace(ranks, uneven="join")
        return self._class(self._data, self._num_neighbors, self._inputs[stage], **options)

    def _budget(self) -> int | str | MemoryBudget | None:
        """Return the memory of a loader, one budget for all of them."""
        if getattr(self._options.get("ranks"), "share", None) is None and not isinstance(self._memory, MemoryBudget):
            if self._memory is None and not isinstance(self._data, Store | str | os.PathLike):
                return None
            self._memory = MemoryBudget(max(1, available_memory() // 2) if self._memory is None else self._memory)
        return self._memory

    # What Lightning calls.

    def train_dataloader(self) -> Loader:
        """Return the loader of ``"train"``."""
        saved, self._saved = self._saved, {}
        processes = self._processes()
        if saved.get("within an epoch") and saved["processes"] != processes:
            raise RankError(
                f"the checkpoint was saved within an epoch by {saved['processes']} processes, and there are "
                f"{processes}: Lightning counts the steps of one process, so go on with as many, or from the end of "
                "an epoch"
            )
        if self._overfits != self._overfitting() and "train" in self._open:
            self._open.pop("train").close()
        return self.loader("train")

    def val_dataloader(self) -> Loader:
        """Return the loader of ``"val"``."""
        return self.loader("val")

    def test_dataloader(self) -> Loader:
        """Return the loader of ``"test"``."""
        return self.loader("test")

    def predict_dataloader(self) -> Loader:
        """Return the loader of ``"predict"``."""
        return self.loader("predict")

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint holds of this beside the position of the training loader, which Lightning saves."""
        train = self._open.get("train")
        if train is None:
            return {}
        return {"processes": self._processes(), "within an epoch": engine_of(train).within}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take what :meth:`state_dict` returned; the training loader compares it with the processes that there are."""
        self._saved = state_dict

    def __repr__(self) -> str:
        data = str(self._data) if isinstance(self._data, str | os.PathLike) else checks.shown(self._data)
        stages = [f"{stage}={checks.shown(of)}" for stage, of in self._inputs.items()]
        opened = [f"{stage}: {len(of)} batches" for stage, of in self._open.items()]
        parts = [data, checks.shown(self._num_neighbors), *stages, *([f"open: {', '.join(opened)}"] if opened else [])]
        return f"{type(self).__name__}({', '.join(parts)})"

    __str__ = __repr__  # Lightning's own opens every loader

    def _overfitting(self) -> bool:
        return bool(getattr(self.trainer, "overfit_batches", 0))

    def _processes(self) -> int:
        return 1 if self.trainer is None else int(self.trainer.world_size)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open": {}}  # a process that is started opens loaders of its own
