"""What ``History`` is made of: hooks in a model, the training step, statistics, saved states."""
