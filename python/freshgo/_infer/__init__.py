"""What inference is made of."""
