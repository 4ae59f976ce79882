"""Faults drawn from a seed, on clusters of real processes: what a job leaves must be what it leaves without them."""
