"""Arrays that wait on disk beside the store until the library has read them."""
