"""Operators of neural networks: all that are declared as ``nn.NAME``, in any file of the folder."""
