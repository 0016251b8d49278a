"""What the ranks of a host have in common: a process that serves them, and what they tell each other."""
