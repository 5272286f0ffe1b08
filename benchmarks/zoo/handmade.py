"""Architectures that no library here has, in plain PyTorch: each after its paper, made small."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class LstmTagger(nn.Module):
    """Bidirectional LSTM over words (Huang, Xu, Yu 2015)."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(1000, 64)
        self.lstm = nn.LSTM(64, 96, num_layers=2, bidirectional=True, batch_first=True)
        self.tags = nn.Linear(192, 17)

    def forward(self, ids: Tensor) -> Tensor:
        hidden, _ = self.lstm(self.words(ids))
        return F.log_softmax(self.tags(hidden), dim=-1)

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.randint(0, 1000, (2, 40)),)


class GruLanguageModel(nn.Module):
    """GRU over words with tied weights (Cho et al. 2014)."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(1000, 128)
        self.gru = nn.GRU(128, 128, batch_first=True)

    def forward(self, ids: Tensor) -> Tensor:
        hidden, _ = self.gru(self.words(ids))
        return hidden @ self.words.weight.T

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.randint(0, 1000, (2, 32)),)


class Seq2SeqAttention(nn.Module):
    """Encoder and decoder with additive attention (Bahdanau, Cho, Bengio 2015)."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(500, 64)
        self.encoder = nn.GRU(64, 64, batch_first=True, bidirectional=True)
        self.cell = nn.GRUCell(64 + 128, 64)
        self.query, self.key, self.score = nn.Linear(64, 64), nn.Linear(128, 64), nn.Linear(64, 1)
        self.out = nn.Linear(64, 500)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        states, _ = self.encoder(self.words(source))
        keys, hidden, steps = self.key(states), states.new_zeros(source.shape[0], 64), []
        for place in range(target.shape[1]):
            score = self.score(torch.tanh(keys + self.query(hidden)[:, None])).softmax(1)
            seen = (score * states).sum(1)
            hidden = self.cell(torch.cat([self.words(target[:, place]), seen], -1), hidden)
            steps.append(self.out(hidden))
        return torch.stack(steps, 1)

    def inputs(self) -> tuple[Tensor, ...]:
        return torch.randint(0, 500, (2, 12)), torch.randint(0, 500, (2, 6))


class Dlrm(nn.Module):
    """Deep learning recommendation model (Naumov et al. 2019)."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(1000, 32, mode="sum") for _ in range(6))
        self.bottom = nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(32 + 21, 64), nn.ReLU(), nn.Linear(64, 1), nn.Sigmoid())
        row, column = torch.tril_indices(7, 7, -1)
        self.register_buffer("row", row)
        self.register_buffer("column", column)

    def forward(self, dense: Tensor, sparse: Tensor) -> Tensor:
        first = self.bottom(dense)
        bags = [table(sparse[:, place]) for place, table in enumerate(self.tables)]
        features = torch.stack([first, *bags], 1)
        products = torch.bmm(features, features.transpose(1, 2))[:, self.row, self.column]
        return self.top(torch.cat([first, products], 1))

    def inputs(self) -> tuple[Tensor, ...]:
        return torch.randn(32, 13), torch.randint(0, 1000, (32, 6, 4))


class NeuralCollaborativeFiltering(nn.Module):
    """Products and a perceptron over users and items (He et al. 2017)."""

    def __init__(self) -> None:
        super().__init__()
        self.user, self.item = nn.Embedding(500, 32), nn.Embedding(800, 32)
        self.deep = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 16), nn.ReLU())
        self.out = nn.Linear(48, 1)

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        u, i = self.user(user), self.item(item)
        return torch.sigmoid(self.out(torch.cat([u * i, self.deep(torch.cat([u, i], -1))], -1)))

    def inputs(self) -> tuple[Tensor, ...]:
        return torch.randint(0, 500, (64,)), torch.randint(0, 800, (64,))


class DeepFM(nn.Module):
    """Factorisation machine beside a perceptron (Guo et al. 2017)."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.linear = nn.Embedding(2000, 16), nn.Embedding(2000, 1)
        self.deep = nn.Sequential(nn.Linear(10 * 16, 64), nn.BatchNorm1d(64), nn.ReLU())
        self.out = nn.Linear(64, 1)

    def forward(self, fields: Tensor) -> Tensor:
        v = self.embedding(fields)
        pairs = 0.5 * (v.sum(1).square() - v.square().sum(1)).sum(1, keepdim=True)
        return torch.sigmoid(self.linear(fields).sum(1) + pairs + self.out(self.deep(v.flatten(1))))

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.randint(0, 2000, (64, 10)),)


class Dcn(nn.Module):
    """Deep and cross network (Wang et al. 2017)."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(2000, 8)
        self.crosses = nn.ModuleList(nn.Linear(80, 1) for _ in range(3))
        self.deep = nn.Sequential(nn.Linear(80, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())
        self.out = nn.Linear(112, 1)

    def forward(self, fields: Tensor) -> Tensor:
        first = self.embedding(fields).flatten(1)
        x = first
        for cross in self.crosses:
            x = first * cross(x) + x
        return torch.sigmoid(self.out(torch.cat([x, self.deep(first)], 1)))

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.randint(0, 2000, (64, 10)),)


class Din(nn.Module):
    """Deep interest network: attention of a candidate over a history (Zhou et al. 2018)."""

    def __init__(self) -> None:
        super().__init__()
        self.items = nn.Embedding(1000, 32)
        self.attention = nn.Sequential(nn.Linear(128, 32), nn.PReLU(), nn.Linear(32, 1))
        self.out = nn.Sequential(nn.Linear(64, 32), nn.PReLU(), nn.Linear(32, 1))

    def forward(self, history: Tensor, candidate: Tensor) -> Tensor:
        past, item = self.items(history), self.items(candidate)
        wide = item[:, None].expand_as(past)
        weight = self.attention(torch.cat([wide, past, wide - past, wide * past], -1))
        weight = weight.masked_fill((history == 0)[..., None], 0.0)
        return torch.sigmoid(self.out(torch.cat([(weight * past).sum(1), item], -1)))

    def inputs(self) -> tuple[Tensor, ...]:
        return torch.randint(0, 1000, (32, 20)), torch.randint(0, 1000, (32,))


NODES, EDGES, FEATURES = 200, 800, 32


def _graph() -> tuple[Tensor, ...]:
    return torch.randn(NODES, FEATURES), torch.randint(0, NODES, (2, EDGES))


class Gcn(nn.Module):
    """Graph convolution with normalised sums over neighbours (Kipf, Welling 2017)."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(FEATURES, 64), nn.Linear(64, 7)

    def propagate(self, x: Tensor, edges: Tensor) -> Tensor:
        source, target = edges
        degree = x.new_zeros(NODES).index_add(0, target, x.new_ones(EDGES)) + 1
        weight = degree.rsqrt()
        messages = x[source] * (weight[source] * weight[target])[:, None]
        return x / degree[:, None] + torch.zeros_like(x).index_add(0, target, messages)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        hidden = F.relu(self.propagate(self.first(x), edges))
        return F.log_softmax(self.propagate(self.second(hidden), edges), -1)

    def inputs(self) -> tuple[Tensor, ...]:
        return _graph()


class GraphSage(nn.Module):
    """The largest of the neighbours' features (Hamilton, Ying, Leskovec 2017)."""

    def __init__(self) -> None:
        super().__init__()
        self.pool, self.mine, self.theirs = (nn.Linear(FEATURES, FEATURES) for _ in range(3))

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        source, target = edges
        messages = F.relu(self.pool(x))[source]
        index = target[:, None].expand_as(messages)
        largest = torch.zeros_like(x).scatter_reduce(0, index, messages, "amax")
        return F.normalize(F.relu(self.mine(x) + self.theirs(largest)), dim=-1)

    def inputs(self) -> tuple[Tensor, ...]:
        return _graph()


class Gat(nn.Module):
    """Attention over neighbours (Velickovic et al. 2018)."""

    def __init__(self) -> None:
        super().__init__()
        self.project, self.heads = nn.Linear(FEATURES, 64), 4
        self.source, self.target = (nn.Parameter(torch.randn(4, 16)) for _ in range(2))

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        source, target = edges
        h = self.project(x).view(NODES, self.heads, 16)
        score = (h * self.source).sum(-1)[source] + (h * self.target).sum(-1)[target]
        weight = F.leaky_relu(score, 0.2).exp()
        total = weight.new_zeros(NODES, self.heads).index_add(0, target, weight)
        messages = h[source] * (weight / (total[target] + 1e-9))[..., None]
        return F.elu(torch.zeros_like(h).index_add(0, target, messages)).flatten(1)

    def inputs(self) -> tuple[Tensor, ...]:
        return _graph()


class Gin(nn.Module):
    """Graph isomorphism network with a readout per graph (Xu et al. 2019)."""

    def __init__(self) -> None:
        super().__init__()
        self.eps = nn.Parameter(torch.zeros(1))
        self.mlp = nn.Sequential(nn.Linear(FEATURES, 64), nn.BatchNorm1d(64), nn.ReLU())
        self.out = nn.Linear(64, 2)

    def forward(self, x: Tensor, edges: Tensor, graph: Tensor) -> Tensor:
        source, target = edges
        hidden = self.mlp((1 + self.eps) * x + torch.zeros_like(x).index_add(0, target, x[source]))
        index = graph[:, None].expand_as(hidden)
        return self.out(hidden.new_zeros(8, 64).scatter_add(0, index, hidden))

    def inputs(self) -> tuple[Tensor, ...]:
        return *_graph(), torch.randint(0, 8, (NODES,))


class ConvTasNet(nn.Module):
    """Separation of two speakers in a learned basis (Luo, Mesgarani 2019)."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Conv1d(1, 64, 16, stride=8, bias=False)
        self.norm = nn.GroupNorm(1, 64)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv1d(64, 96, 1),
                nn.PReLU(),
                nn.GroupNorm(1, 96),
                nn.Conv1d(96, 96, 3, padding=2**power, dilation=2**power, groups=96),
                nn.PReLU(),
                nn.GroupNorm(1, 96),
                nn.Conv1d(96, 64, 1),
            )
            for power in range(4)
        )
        self.masks = nn.Conv1d(64, 128, 1)
        self.decode = nn.ConvTranspose1d(64, 1, 16, stride=8, bias=False)

    def forward(self, wave: Tensor) -> Tensor:
        basis = F.relu(self.encode(wave))
        hidden = self.norm(basis)
        for block in self.blocks:
            hidden = hidden + block(hidden)
        masks = torch.sigmoid(self.masks(hidden)).view(wave.shape[0], 2, 64, -1)
        separate = (masks * basis[:, None]).flatten(0, 1)
        return self.decode(separate).view(wave.shape[0], 2, -1)

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.randn(1, 1, 4000),)


class M5(nn.Module):
    """Convolutions over raw waveforms (Dai et al. 2017)."""

    def __init__(self) -> None:
        super().__init__()
        widths = [(1, 32, 80, 16), (32, 32, 3, 1), (32, 64, 3, 1), (64, 64, 3, 1)]
        self.layers = nn.Sequential(
            *(
                nn.Sequential(
                    nn.Conv1d(a, b, k, stride=s), nn.BatchNorm1d(b), nn.ReLU(), nn.MaxPool1d(4)
                )
                for a, b, k, s in widths
            )
        )
        self.out = nn.Linear(64, 35)

    def forward(self, wave: Tensor) -> Tensor:
        return F.log_softmax(self.out(self.layers(wave).mean(-1)), -1)

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.randn(1, 1, 16000),)


class Crnn(nn.Module):
    """Convolutions, then a recurrent network over columns (Shi, Bai, Yao 2015)."""

    def __init__(self) -> None:
        super().__init__()
        self.images = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.MaxPool2d((2, 1)),
        )
        self.rnn = nn.LSTM(64 * 8, 64, bidirectional=True)
        self.out = nn.Linear(128, 37)

    def forward(self, image: Tensor) -> Tensor:
        columns = self.images(image).flatten(1, 2).permute(2, 0, 1)
        return F.log_softmax(self.out(self.rnn(columns)[0]), -1)

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.randn(1, 1, 32, 64),)


class WaveNet(nn.Module):
    """Gated causal dilated convolutions (van den Oord et al. 2016)."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(1, 32, 1)
        self.gates = nn.ModuleList(nn.Conv1d(32, 64, 2, dilation=2**i) for i in range(6))
        self.mix = nn.ModuleList(nn.Conv1d(32, 64, 1) for _ in range(6))
        self.out = nn.Sequential(nn.ReLU(), nn.Conv1d(32, 64, 1), nn.ReLU(), nn.Conv1d(64, 256, 1))

    def forward(self, wave: Tensor) -> Tensor:
        hidden = self.first(wave)
        skips = torch.zeros_like(hidden)
        for gate, mix in zip(self.gates, self.mix):
            a, b = gate(F.pad(hidden, (gate.dilation[0], 0))).chunk(2, 1)
            residual, skip = mix(torch.tanh(a) * torch.sigmoid(b)).chunk(2, 1)
            hidden, skips = hidden + residual, skips + skip
        return self.out(skips)

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.randn(1, 1, 1000),)


class Tcn(nn.Module):
    """Temporal convolutions with residuals (Bai, Kolter, Koltun 2018)."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Conv1d(24, 24, 3, dilation=2**i) for i in range(5))
        self.out = nn.Linear(24, 4)

    def forward(self, series: Tensor) -> Tensor:
        for block in self.blocks:
            series = F.relu(block(F.pad(series, (2 * block.dilation[0], 0)))) + series
        return self.out(series[..., -1])

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.randn(4, 24, 128),)


class NBeats(nn.Module):
    """Doubly residual stacks of perceptrons (Oreshkin et al. 2020)."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(60, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU())
            for _ in range(3)
        )
        self.back = nn.ModuleList(nn.Linear(128, 60) for _ in range(3))
        self.ahead = nn.ModuleList(nn.Linear(128, 12) for _ in range(3))

    def forward(self, past: Tensor) -> Tensor:
        forecast = past.new_zeros(past.shape[0], 12)
        for block, back, ahead in zip(self.blocks, self.back, self.ahead):
            hidden = block(past)
            past, forecast = past - back(hidden), forecast + ahead(hidden)
        return forecast

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.randn(16, 60),)


class InformerLike(nn.Module):
    """PyTorch's own encoder layers over a series with a position code, distilled by pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Conv1d(7, 64, 3, padding=1, padding_mode="circular")
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, activation="gelu")
            for _ in range(2)
        )
        self.out = nn.Linear(64, 7)
        place = torch.arange(96)[:, None] * torch.exp(torch.arange(0, 64, 2) * -0.14)
        self.register_buffer("places", torch.stack([place.sin(), place.cos()], -1).flatten(1))

    def forward(self, series: Tensor) -> Tensor:
        x = self.embed(series.transpose(1, 2)).transpose(1, 2) + self.places
        for layer in self.layers:
            x = F.max_pool1d(F.elu(layer(x)).transpose(1, 2), 3, 2, 1).transpose(1, 2)
        return self.out(x)

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.randn(2, 96, 7),)


class Mlp(nn.Sequential):
    """784-256-10."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.randn(1, 784),)


class LeNet(nn.Sequential):
    """LeNet-5 (LeCun et al. 1998)."""

    def __init__(self) -> None:
        images = (nn.Conv2d(1, 6, 5, padding=2), nn.Tanh(), nn.AvgPool2d(2), nn.Conv2d(6, 16, 5))
        rest = (nn.Tanh(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(400, 120), nn.Tanh())
        super().__init__(*images, *rest, nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, 10))

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.randn(1, 1, 28, 28),)


class UNet(nn.Module):
    """Contracting and expanding paths with copies between them (Ronneberger et al. 2015)."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList(self.block(a, b) for a, b in ((1, 16), (16, 32), (32, 64)))
        self.rise = nn.ModuleList(nn.ConvTranspose2d(2 * b, b, 2, stride=2) for b in (32, 16))
        self.up = nn.ModuleList(self.block(2 * b, b) for b in (32, 16))
        self.out = nn.Conv2d(16, 2, 1)

    @staticmethod
    def block(a: int, b: int) -> nn.Module:
        """Two convolutions."""
        convs = (nn.Conv2d(a, b, 3, padding=1), nn.ReLU(), nn.Conv2d(b, b, 3, padding=1), nn.ReLU())
        return nn.Sequential(*convs)

    def forward(self, x: Tensor) -> Tensor:
        kept: list[Tensor] = []
        for place, block in enumerate(self.down):
            x = block(F.max_pool2d(x, 2) if place else x)
            kept.append(x)
        for rise, up, copy in zip(self.rise, self.up, kept[-2::-1]):
            x = up(torch.cat([copy, rise(x)], 1))
        return self.out(x)

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.randn(1, 1, 64, 64),)


class Vae(nn.Module):
    """Variational autoencoder at the mean of its code (Kingma, Welling 2014)."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(784, 256), nn.Softplus(), nn.Linear(256, 40))
        self.decode = nn.Sequential(nn.Linear(20, 256), nn.Softplus(), nn.Linear(256, 784))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mean, spread = self.encode(x).chunk(2, -1)
        divergence = 0.5 * (mean.square() + spread.exp() - 1 - spread).sum(-1)
        return torch.sigmoid(self.decode(mean)), divergence

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.rand(4, 784),)


class DcganGenerator(nn.Sequential):
    """Transposed convolutions from noise to images (Radford, Metz, Chintala 2016)."""

    def __init__(self) -> None:
        steps: list[nn.Module] = []
        for a, b, stride, padding in ((64, 128, 1, 0), (128, 64, 2, 1), (64, 32, 2, 1)):
            steps += [
                nn.ConvTranspose2d(a, b, 4, stride, padding, bias=False),
                nn.BatchNorm2d(b),
                nn.ReLU(),
            ]
        super().__init__(*steps, nn.ConvTranspose2d(32, 3, 4, 2, 1, bias=False), nn.Tanh())

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.randn(2, 64, 1, 1),)


class PointNet(nn.Module):
    """One perceptron for each point, the largest over all (Qi et al. 2017)."""

    def __init__(self) -> None:
        super().__init__()
        widths = ((3, 64), (64, 128), (128, 256))
        self.points = nn.Sequential(
            *(nn.Sequential(nn.Conv1d(a, b, 1), nn.BatchNorm1d(b), nn.ReLU()) for a, b in widths)
        )
        self.out = nn.Linear(256, 40)

    def forward(self, points: Tensor) -> Tensor:
        return self.out(self.points(points).amax(-1))

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.randn(2, 3, 512),)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "lstm_tagger": LstmTagger,
    "gru_language_model": GruLanguageModel,
    "seq2seq_attention": Seq2SeqAttention,
    "dlrm": Dlrm,
    "neural_collaborative_filtering": NeuralCollaborativeFiltering,
    "deepfm": DeepFM,
    "dcn": Dcn,
    "din": Din,
    "gcn": Gcn,
    "graphsage": GraphSage,
    "gat": Gat,
    "gin": Gin,
    "conv_tasnet": ConvTasNet,
    "m5": M5,
    "crnn": Crnn,
    "wavenet": WaveNet,
    "tcn": Tcn,
    "nbeats": NBeats,
    "informer_like": InformerLike,
    "mlp": Mlp,
    "lenet": LeNet,
    "unet": UNet,
    "vae": Vae,
    "dcgan_generator": DcganGenerator,
    "pointnet": PointNet,
}
