"""What loaders have in common, whatever they sample: their place in the epochs, their figures and their end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from freshgo._args import checks
from freshgo._args.entry import entry
from freshgo._loader.engine import Engine
from freshgo.errors import DTypeError

if TYPE_CHECKING:
    from typing_extensions import Self

    from freshgo.plan import Plan


@entry
class StatefulLoader:
    """A loader that continues where it was saved, tells what it did, and is closed."""

    _engine: Engine

    def set_epoch(self, epoch: int) -> None:
        """Make the next ``iter`` begin ``epoch``, from its first batch."""
        self._engine.seek(checks.count("epoch", epoch, 0), 0)

    def state_dict(self) -> dict[str, Any]:
        """Return how far this loader is: the batches it has yielded, and what they depend on. The result can be stored
        as JSON.

        With several ranks, ``"batches"`` counts those of all of them, and supposes that each has yielded as many as
        this one. So all ranks return the same after the same number of steps, and one of these states is enough: save
        that of rank 0, which has the last batch where the others have none.
        """
        return self._engine.state()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Make the next ``iter`` continue where ``state`` was saved, with the identical next batch.

        All ranks load the same state. There may be more or fewer of them than when it was saved: together they yield
        every batch that is left.

        With ``reorder`` of the cache, the order of the batches is made as it was then, whatever the memory is now. With
        ``pad=True`` batches have the sizes of the state.

        Raises:
            InvalidArgumentError: ``state`` is not a state, or belongs to a loader that yields other batches.
        """
        self._engine.resume(state)

    def stats(self, prefix: str | None = None) -> dict[str, Any]:
        """Return what the loader did since it was opened.

        With a ``prefix`` such as ``"loader/"``, return the numbers alone, in one dict without further dicts, as
        TensorBoard, Weights & Biases and MLflow take them: ``"loader/rows"``, ``"loader/memory/batch"``,
        ``"loader/last_epoch/seconds"`` (of the last of ``"epochs"``).

        - ``"batches"``, ``"rows"`` (of nodes) and ``"edges"`` that were handed over. Of the batches, ``"padded"`` have
          the sizes of ``pad=True``, which are the ``"envelope"``: nodes by type and hop, then edges by type and hop. Of
          the rows, ``"hits"`` were in memory, ``"packed"`` were kept aside earlier for their batch (of tables that
          learn, also taken from the batch before), ``"misses"`` were read for it, and ``"held"`` were on the device.
          ``"neighbor_hits"`` and ``"neighbor_misses"`` count sampled edges whose neighbour was in memory, or was read.
        - ``"bytes_read"`` and ``"requests"`` of the disk, including fills of caches and excluding the measurement of
          the device. ``"scratch_written"``, ``"scratch_read"``: bytes of the scratch file.
        - with ``embeddings=``: ``"table_rows"`` of tables in batches; of these ``"table_rows_late"`` were put in at the
          hand-over, because an earlier batch had them until then. ``"table_bytes_read"``: of rows for batches, and of
          what is read to write rows back. ``"table_bytes_written"``: pages of the tables, their undo journals, and
          spilled rows; for each of ``"table_bytes_returned"``, of rows that went back into the files, this is the write
          amplification.
        - ``"seconds_waiting"``: how long the loop waited for batches; if it is small, the loader does not limit the
          training. ``"seconds_sampling"``, ``"_reading"``, ``"_gathering"``, ``"_planning"``: summed over threads.
          ``"seconds_opening"``; ``"seconds_first_batch"`` and ``"seconds_epoch"`` of the last epoch.
        - on a device: ``"device_cache_rows"``, ``"device_cache_bytes"`` of its cache, ``"device_lists_bytes"`` of the
          neighbour lists that it draws from, and ``"locked_bytes"`` of the tensors in memory whose rows the device
          reads itself.
        - ``"memory_limit"``, ``"memory_used"``, ``"memory_peak"``, ``"memory_smallest"`` (the smallest
          ``memory`` that works), in bytes; ``"memory"`` and ``"memory_peaks"`` by purpose.
        - ``"engine"``, ``"cache"``, ``"cached_rows"``, ``"cache_capacity"`` (rows), ``"superbatch"``,
          ``"topology_on_disk"``, ``"num_workers"``, ``"prefetch"``: what was chosen.
        - ``"sharded"``: with ``Ranks(features="sharded")``, what divided rows took since the ranks of the last process
          group joined: ``"rows_held"`` of batches that were in memory, ``"rows_own"`` of the rank's parts,
          ``"rows_remote"``; ``"rows_served"`` for other ranks, ``"bytes_sent"`` and ``"bytes_received"``,
          ``"turns"`` of the exchange, ``"seconds_exchanging"``, ``"exchange"`` (the way of the next one),
          ``"hot_rows"`` in memory, and ``"bytes_read"`` and ``"requests"`` of the parts.
        - ``"openings"``: how often it was opened: more than once by a :class:`MemoryBudget`, or for the rows that a
          device holds.
        - ``"epochs"``: the epochs that were consumed from their first batch to their last, with what each added.
        """
        return self._engine.stats(prefix)

    def plan(self) -> Plan:
        """Return how the memory is divided and how rows are read: what was chosen, why, and what it took.

        The plan prints as text and draws itself with ``plot()``; ``data`` is a dict.
        """
        from freshgo.plan import Plan

        return Plan(self._engine.openings.plan())

    def plot(self) -> Any:
        """Return a matplotlib figure of :meth:`stats`: time, bytes, cache hits, memory, and epoch by epoch."""
        from freshgo._plots.stats import figure

        return figure(self.stats())

    def close(self) -> None:
        """End the running epoch and free everything but the batches. Closing again does nothing."""
        self._engine.close()

    def __getitem__(self, index: object) -> NoReturn:
        raise DTypeError(
            f"a {type(self).__name__} cannot be indexed: iterate over it. It makes whole batches and replaces "
            "torch.utils.data.DataLoader, which cannot wrap it"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        self._engine.__reduce__()

    def _repr_html_(self) -> str:
        from freshgo._plots.stats import html

        return html(repr(self), {} if self._engine.openings.closed else self.stats())
