"""The headers of the C API in ctypes: a module for each of ``csrc/include/freshgo``, declarations alone.

A struct has its name in C as docstring. ``SIGNATURES`` are the arguments of functions but the last one, which is the
error. ``_abi`` loads the library and calls it.
"""

from freshgo._header import batch, convert, graph, history, job, lab, library, loader, store, tensor

SIGNATURES = {
    **library.SIGNATURES,
    **job.SIGNATURES,
    **tensor.SIGNATURES,
    **store.SIGNATURES,
    **graph.SIGNATURES,
    **convert.SIGNATURES,
    **loader.SIGNATURES,
    **batch.SIGNATURES,
    **history.SIGNATURES,
    **lab.SIGNATURES,
}
"""Those of every function but the operators and the device path."""
