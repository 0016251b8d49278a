"""What callers give, read and checked: arrays, graphs, sizes, types of nodes. Knows neither the library nor a store."""
