"""Networks for text, of the shapes of known ones, in plain PyTorch and without dropout."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def split(x: Tensor, heads: int) -> Tensor:
    """(batch, length, width) to (batch, heads, length, size)."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.inputs = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (split(part, self.heads) for part in self.inputs(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        return self.output(y.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """Normalizes before its parts, as GPT-2 does, or after them, as BERT does."""

    def __init__(self, width: int, heads: int, *, gpt: bool, causal: bool = True) -> None:
        super().__init__()
        self.gpt = gpt
        self.attention = Attention(width, heads, causal=gpt and causal)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def feed_forward(self, x: Tensor) -> Tensor:
        return self.narrow(F.gelu(self.widen(x), approximate="tanh" if self.gpt else "none"))

    def forward(self, x: Tensor) -> Tensor:
        if self.gpt:
            x = x + self.attention(self.norm1(x))
            return x + self.feed_forward(self.norm2(x))
        x = self.norm1(x + self.attention(x))
        return self.norm2(x + self.feed_forward(x))


class Encoder(nn.Module):
    """MiniLM's shape: 6 layers of width 384 with 12 heads, and one vector for a text."""

    def __init__(self, layers: int, vocabulary: int, width: int = 384, heads: int = 12) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(512, width)
        self.norm = nn.LayerNorm(width)
        self.blocks = nn.Sequential(*(Block(width, heads, gpt=False) for _ in range(layers)))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]
        return F.normalize(self.blocks(self.norm(x)).mean(1), dim=-1)


class GPT2(nn.Module):
    """GPT-2 small's shape: 12 layers of width 768 with 12 heads."""

    def __init__(self, layers: int, vocabulary: int, width: int = 768, heads: int = 12) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(1024, width)
        self.blocks = nn.Sequential(*(Block(width, heads, gpt=True) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        for table in (self.tokens, self.places):
            nn.init.normal_(table.weight, std=0.02)

    def loss(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens[:, :-1]) + self.places.weight[: tokens.shape[1] - 1]
        logits = F.linear(self.norm(self.blocks(x)), self.tokens.weight)
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


class LlamaBlock(nn.Module):
    """RMS norms, rotary positions and a gate."""

    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = (nn.RMSNorm(width, eps=1e-6) for _ in range(2))
        self.inputs = nn.Linear(width, 3 * width, bias=False)
        self.output = nn.Linear(width, width, bias=False)
        self.gate, self.widen = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.narrow = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
        parts = self.inputs(self.norm1(x)).chunk(3, -1)
        query, key, value = (split(part, self.heads) for part in parts)
        query, key = (rotate(part, *turn).to(value.dtype) for part in (query, key))
        y = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.output(y.transpose(1, 2).flatten(2))
        y = self.norm2(x)
        return x + self.narrow(F.silu(self.gate(y)) * self.widen(y))


class Llama(nn.Module):
    """With 12 layers of width 1024 and 32,000 tokens, 219 million parameters."""

    def __init__(
        self, layers: int, vocabulary: int, width: int = 1024, heads: int = 16, inner: int = 2816
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(LlamaBlock(width, heads, inner) for _ in range(layers))
        self.norm = nn.RMSNorm(width, eps=1e-6)
        self.classify = nn.Linear(width, vocabulary, bias=False)
        half = width // heads // 2
        self.register_buffer("waves", 1e4 ** (-torch.arange(half) / half))

    def loss(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1] - 1, device=tokens.device)
        angles = (places[:, None] * self.waves).repeat(1, 2)
        x, turn = self.tokens(tokens[:, :-1]), (angles.cos(), angles.sin())
        for block in self.blocks:
            x = block(x, turn)
        return F.cross_entropy(self.classify(self.norm(x)).flatten(0, 1), tokens[:, 1:].flatten())


class DecodeBlock(nn.Module):
    """Qwen2's: RMS norms, rotary positions, few heads for keys and values, a gate."""

    def __init__(self, width: int, heads: int, shared: int, inner: int, length: int) -> None:
        super().__init__()
        self.heads, self.shared = heads, shared
        size = width // heads
        self.sizes = (heads * size, shared * size, shared * size)
        self.norm1, self.norm2 = (nn.RMSNorm(width, eps=1e-6) for _ in range(2))
        self.inputs = nn.Linear(width, sum(self.sizes))
        self.output = nn.Linear(width, width, bias=False)
        self.gate, self.widen = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.narrow = nn.Linear(inner, width, bias=False)
        for name in ("keys", "values"):
            self.register_buffer(name, torch.randn(1, shared, length, size))

    def forward(self, x: Tensor, position: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
        query, key, value = self.inputs(self.norm1(x)).split(self.sizes, -1)
        query, key = rotate(split(query, self.heads), *turn), rotate(split(key, self.shared), *turn)
        self.keys.index_copy_(2, position, key)
        self.values.index_copy_(2, position, split(value, self.shared))
        visible = torch.arange(self.keys.shape[2], device=x.device) <= position[:, None]
        y = F.scaled_dot_product_attention(
            query, self.keys, self.values, attn_mask=visible, enable_gqa=True
        )
        x = x + self.output(y.transpose(1, 2).flatten(2))
        y = self.norm2(x)
        return x + self.narrow(F.silu(self.gate(y)) * self.widen(y))


def rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return x * cosine + torch.cat([-b, a], -1) * sine


class QwenDecoder(nn.Module):
    """Qwen2.5-0.5B's shape: 24 layers of width 896 with 14 heads, 2 for keys and values."""

    def __init__(
        self, layers: int, vocabulary: int, length: int, width: int = 896, inner: int = 4864
    ) -> None:
        super().__init__()
        heads, shared = 14, 2
        self.tokens = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(
            DecodeBlock(width, heads, shared, inner, length) for _ in range(layers)
        )
        self.norm = nn.RMSNorm(width, eps=1e-6)
        half = width // heads // 2
        nn.init.normal_(self.tokens.weight, std=0.02)
        self.register_buffer("waves", 1e6 ** (-torch.arange(half) / half))

    def forward(self, token: Tensor, position: Tensor) -> Tensor:
        """The logits after one token; its keys and values go into the caches."""
        angles = (position[:, None] * self.waves.float()).repeat(1, 2)
        x = self.tokens(token)
        turn = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        for block in self.blocks:
            x = block(x, position, turn)
        return F.linear(self.norm(x), self.tokens.weight)
