"""What a store holds."""
