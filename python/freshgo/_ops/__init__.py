"""What ``freshgo.ops`` is made of: kernels, and their operators in torch."""
