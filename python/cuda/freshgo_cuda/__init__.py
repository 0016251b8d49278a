"""The native library of freshgo with CUDA, ``libfreshgo_cuda.so``. freshgo finds it by itself; there is no API here."""
