"""Networks over tokens that the tests of attention share: small, seeded, pruned at random."""

from __future__ import annotations

import math
import warnings

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WORDS, LONGEST, WIDTH, HEADS = 23, 16, 24, 3


def encoder(layers: int = 1, **options: object) -> nn.Module:
    """torch's own."""
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 40, **{"batch_first": True, **options})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it has no nested tensors
        return nn.TransformerEncoder(layer, layers, norm=nn.LayerNorm(WIDTH))


class Masked(nn.Module):
    """torch's encoder with a mask that is computed, or is a buffer."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.encoder, self.how = encoder(), how
        self.register_buffer("bools", torch.rand(LONGEST, LONGEST) < 0.3)
        self.bools.fill_diagonal_(False)
        self.register_buffer("floats", torch.randn(LONGEST, LONGEST))

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.shape[1]
        if self.how == "causal":
            mask = nn.Transformer.generate_square_subsequent_mask(tokens)
            return self.encoder(x, mask=mask, is_causal=True)
        if self.how == "computed":
            return self.encoder(x, mask=torch.ones(tokens, tokens).triu(1).bool())
        table = self.bools if self.how == "bools" else self.floats
        return self.encoder(x, mask=table[:tokens, :tokens])


class BatchSecond(nn.Module):
    """torch's encoder as it is by default, inside of a network that has the batch first."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = encoder(batch_first=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.encoder(x.transpose(0, 1)).transpose(0, 1)


class ViT(nn.Module):
    """Patches of an image as tokens, with a token for the class or their mean."""

    def __init__(self, class_token: bool) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, 4, 4)
        self.token = nn.Parameter(torch.randn(1, 1, WIDTH)) if class_token else None
        self.positions = nn.Parameter(torch.randn(1, 9 + class_token, WIDTH))
        self.encoder = encoder(norm_first=True, activation="gelu")
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        if self.token is not None:
            x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1)
        x = self.encoder(x + self.positions)
        return self.head(x[:, 0] if self.token is not None else x.mean(1))


class Attention(nn.Module):
    """As people write it: by torch's function, or out of matrix products."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.register_buffer("seen", torch.tril(torch.ones(LONGEST, LONGEST))[None, None])

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, _ = x.shape
        parts = self.qkv(x).split(WIDTH, dim=2)
        q, k, v = (p.view(batch, tokens, HEADS, WIDTH // HEADS).transpose(1, 2) for p in parts)
        made = self.attend(q, k, v, tokens)
        return self.out(made.transpose(1, 2).contiguous().view(batch, tokens, WIDTH))

    def attend(self, q: Tensor, k: Tensor, v: Tensor, tokens: int) -> Tensor:
        if self.how == "function":
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        scores = q @ k.transpose(-2, -1)
        if self.how == "buffer":
            scores = scores * (1 / math.sqrt(k.shape[-1]))
            hidden = self.seen[:, :, :tokens, :tokens] == 0
            scores = scores.masked_fill(hidden, float("-inf"))
        elif self.how == "tril":
            scores = scores / math.sqrt(k.shape[-1])
            scores = scores.masked_fill(torch.tril(torch.ones(tokens, tokens)) == 0, -1e9)
        elif self.how == "where":
            seen = torch.tril(torch.ones(tokens, tokens, dtype=torch.bool))
            scores = torch.where(seen, scores, float("-inf"))
        elif self.how == "sum":
            scores = scores + torch.full((tokens, tokens), float("-inf")).triu(1)
        return F.softmax(scores, dim=-1) @ v


class GPT(nn.Module):
    """Tokens to the next token's logits; the head shares the table of words."""

    def __init__(self, how: str = "function", last: bool = False) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(WORDS, WIDTH), nn.Embedding(LONGEST, WIDTH)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(5))
        self.attentions = nn.ModuleList(Attention(how) for _ in range(2))
        self.up = nn.ModuleList(nn.Linear(WIDTH, 4 * WIDTH) for _ in range(2))
        self.down = nn.ModuleList(nn.Linear(4 * WIDTH, WIDTH) for _ in range(2))
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        self.head.weight, self.last = self.words.weight, last

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids) + self.positions(torch.arange(ids.shape[1]))
        for i in range(2):
            x = x + self.attentions[i](self.norms[2 * i](x))
            x = x + self.down[i](F.gelu(self.up[i](self.norms[2 * i + 1](x))))
        return self.head(self.norms[4](x[:, -1] if self.last else x))


class Learned(nn.Module):
    """Positions that are a parameter, sliced."""

    def __init__(self) -> None:
        super().__init__()
        self.positions = nn.Parameter(torch.zeros(1, LONGEST, WIDTH))
        self.attention = Attention("plain")

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x + self.positions[:, : x.shape[1]])


def prune(model: nn.Module, density: float = 0.3) -> nn.Module:
    """In eval mode, with zeros in its matrices."""
    for param in model.parameters():
        if param.ndim > 1:
            param.data *= torch.rand_like(param) < density
            param.data /= density**0.5
    return model.eval()


OVER_TOKENS = {
    "encoder": lambda: encoder(2),
    "norm first": lambda: encoder(norm_first=True),
    "gelu": lambda: encoder(activation="gelu"),
    "batch second": BatchSecond,
    **{f"masked {how}": lambda how=how: Masked(how) for how in ("causal", "computed", "floats")},
    "masked bools": lambda: Masked("bools"),
    **{
        f"attention {how}": lambda how=how: Attention(how)
        for how in ("function", "plain", "buffer", "tril", "where", "sum")
    },
    "learned": Learned,
}
OF_WORDS = {
    "gpt": GPT,
    "gpt by hand": lambda: GPT("buffer"),
    "gpt, last token": lambda: GPT(last=True),
}
