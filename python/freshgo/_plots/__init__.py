"""Statistics, plans, simulations and histories as text and figures."""
