"""Operators on ``nn.Tensor`` by family, with TVM's signatures; ``nn.op`` has all of them."""
