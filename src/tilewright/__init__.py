"""Tilewright: makes tensor programs fast on the hardware at hand."""

__version__ = "0.1.0"
