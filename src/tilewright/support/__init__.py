"""Helpers that know nothing of compilers: errors, registries, settings, text."""
