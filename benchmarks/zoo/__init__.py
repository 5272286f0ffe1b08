"""Models of the usual families, with random weights, through every way in: ``benchmarks.zoo``."""
