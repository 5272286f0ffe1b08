"""The version of the package, which the build reads from here and records keep."""

__version__ = "0.1.0"
