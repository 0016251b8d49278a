"""What callers give, read and checked: arrays, graphs, sizes, node types. Knows neither the library nor a store."""
