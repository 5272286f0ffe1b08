"""Random programs under random schedules.

``python -m tilewright.testing.fuzz --seconds 60`` looks for a primitive that changes what a program
means, and shrinks what it finds.
"""
