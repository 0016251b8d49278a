"""Tables on their way into a store: where they are read, how their columns become numbers, in which order."""
