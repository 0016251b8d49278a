"""What ``freshgo.nn`` is made of: PyG's layers over the operators."""
