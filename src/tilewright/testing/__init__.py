"""Helpers that prove things: the fuzzer of the schedule language, and hostile input."""
