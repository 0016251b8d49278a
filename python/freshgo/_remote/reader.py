"""Batches on demand over all nodes of a store."""

from __future__ import annotations

import threading
from typing import Any

from freshgo.loader import Loader
from freshgo.store import Store


class Reader:
    """A loader of any nodes, which is opened when it is first asked. Any thread may call it."""

    def __init__(self, store: Store, num_neighbors: Any, options: dict[str, Any]) -> None:
        self._store, self._num_neighbors, self._options = store, num_neighbors, options
        self._lock = threading.Lock()
        self._loader: Loader | None = None

    def sample(self, ids: Any, time: Any = None) -> Any:
        """Return one batch of nodes, as :meth:`freshgo.Loader.sample` does."""
        with self._lock:
            if self._loader is None:
                types = {name: None for name, of in self._store._contents.nodes.items() if of.num_nodes}
                inputs = types if self._store.node_types else None
                self._loader = Loader(self._store, self._num_neighbors, inputs, **self._options)
            loader = self._loader
        return loader.sample(ids, time)

    def close(self) -> None:
        """Close the loader; the store stays open."""
        with self._lock:
            if self._loader is not None:
                self._loader.close()
                self._loader = None
