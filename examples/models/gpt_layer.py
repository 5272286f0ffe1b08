"""A GPT of one layer in plain PyTorch, with random weights.

Radford, Wu, Child, Luan, Amodei, Sutskever: "Language Models are Unsupervised Multitask Learners"
(2019): each token sees those before it, norms come before attention and feed-forward network, and
the matrix that looks tokens up also gives the scores of the next one. ``build`` makes the layer of
GPT-2 for 128 tokens out of 4096 words::

    tilewright tune examples/models/gpt_layer.py:build
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Layer(nn.Module):
    """Causal attention and a feed-forward network, each normalised before and added after."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.project = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def attention(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        shape = (batch, tokens, self.heads, width // self.heads)
        parts = self.project(x).split(width, dim=2)
        query, key, value = (part.view(shape).transpose(1, 2) for part in parts)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.output(mixed.transpose(1, 2).reshape(batch, tokens, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.down(F.gelu(self.up(self.norm(x)), approximate="tanh"))


class GPT(nn.Module):
    """Embeddings of tokens and places, layers, and the scores of each next token."""

    def __init__(
        self, words: int = 4096, length: int = 128, width: int = 768, heads: int = 12,
        layers: int = 1,
    ) -> None:  # fmt: skip
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = nn.Embedding(length, width)
        self.layers = nn.Sequential(*(Layer(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        for table in (self.words, self.places):
            nn.init.normal_(table.weight, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens) + self.places.weight[: tokens.shape[1]]
        return self.norm(self.layers(x)) @ self.words.weight.t()


def build(seed: int = 0) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Return the model in evaluation mode and one random sequence of 128 tokens."""
    torch.manual_seed(seed)
    model = GPT().eval()
    return model, (torch.randint(0, 4096, (1, 128)),)
