"""What others see of a loader at work: log records, ranges in a profiler's trace, figures by name."""
