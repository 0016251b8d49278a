"""The native library: how it is found, loaded and called, and its objects. Nothing is loaded at import."""
