"""A store behind PyG's abstractions: FeatureStore, GraphStore, BaseSampler."""
