"""One encoder layer of BERT-base in plain PyTorch, with random weights.

Devlin, Chang, Lee, Toutanova: "BERT: Pre-training of Deep Bidirectional Transformers" (NAACL 2019):
multi-head self-attention and a feed-forward network with GELU, each followed by a residual sum and
layer normalisation. ``build`` makes it for 128 tokens of width 768::

    tilewright tune examples/models/bert_layer.py:build
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class SelfAttention(nn.Module):
    """Multi-head scaled dot-product attention of a sequence with itself."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.output = nn.Linear(width, width)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        batch, tokens, width = x.shape
        shape = (batch, tokens, self.heads, width // self.heads)
        query, key, value = (
            project(x).view(shape).transpose(1, 2) for project in (self.query, self.key, self.value)
        )
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return self.output(mixed.transpose(1, 2).reshape(batch, tokens, width))


class EncoderLayer(nn.Module):
    """Attention and feed-forward network, normalised after each sum as in the paper."""

    def __init__(self, width: int = 768, heads: int = 12, hidden: int = 3072) -> None:
        super().__init__()
        self.attention = SelfAttention(width, heads)
        self.attention_norm = nn.LayerNorm(width, eps=1e-12)
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)
        self.output_norm = nn.LayerNorm(width, eps=1e-12)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = self.attention_norm(x + self.dropout(self.attention(x, mask)))
        return self.output_norm(x + self.dropout(self.down(F.gelu(self.up(x)))))


def build(seed: int = 0) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Return the layer in evaluation mode and one random sequence of 128 tokens."""
    torch.manual_seed(seed)
    model = EncoderLayer().eval()
    return model, (torch.randn(1, 128, 768),)
