"""Where arrays wait, beside the store, until the library has read them."""
