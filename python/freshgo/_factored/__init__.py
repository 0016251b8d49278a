"""Training by processes that sample and processes that train: who does what, and what passes between them."""
