"""Tuning whole models: their tasks, and which records serve each kernel where the graph has it."""
