"""Campaigns that try to refute what the project claims: random programs, foreign tests, attacks.

Each is a command, ``python -m tilewright.testing.NAME``: ``fuzz``, ``graphs``, ``hostile``,
``opinfo``, ``onnx_backend`` and ``onnx_graphs``. ``postgresql`` starts a server for tests.
"""
