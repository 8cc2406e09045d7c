"""The network: a decoder of the GPT family, with rotary positions and a cache of fixed size."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .text import VOCABULARY

# Of the angles that positions turn by (Su et al., 2021, arXiv:2104.09864).
LONGEST_WAVE = 10000.0


class Cache:
    """The keys and values of the last `length` positions of one layer.

    A ring: position p lies in slot p % length, so that a text may be longer than the cache.
    Nothing is ever allocated or moved: a graph can be replayed on it.
    """

    def __init__(self, like: Tensor, heads: int, length: int, size: int) -> None:
        self.keys = like.new_zeros(1, heads, length, size)
        self.values = torch.zeros_like(self.keys)


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.inputs = nn.Linear(width, 3 * width, bias=False)
        self.output = nn.Linear(width, width, bias=False)

    def forward(
        self, x: Tensor, turn: tuple[Tensor, Tensor], cache: Cache | None, places: "Places | None"
    ) -> Tensor:
        batch, length, width = x.shape
        parts = self.inputs(x).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        query, key = rotate(query, *turn), rotate(key, *turn)
        if cache is None:
            y = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        else:
            assert places is not None
            cache.keys.index_copy_(2, places.slots, key)
            cache.values.index_copy_(2, places.slots, value)
            y = F.scaled_dot_product_attention(
                query, cache.keys, cache.values, attn_mask=places.visible
            )
        return self.output(y.transpose(1, 2).reshape(batch, length, width))


class Places:
    """Where in a cache the positions of a call lie, and which slots each of them sees."""

    def __init__(self, positions: Tensor, length: int) -> None:
        self.slots = positions % length
        # Until the ring is full, the slots above the position are empty.
        self.visible = torch.arange(length, device=positions.device) <= positions[:, None]


def rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat([a * cosine - b * sine, a * sine + b * cosine], -1)


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.widen = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, x: Tensor, *rest) -> Tensor:
        x = x + self.attention(self.norm1(x), *rest)
        return x + self.narrow(F.gelu(self.widen(self.norm2(x)), approximate="tanh"))


class GPT(nn.Module):
    """Normalizes before each part; the head shares the weights of the embedding."""

    def __init__(self, layers: int, width: int, heads: int, context: int) -> None:
        super().__init__()
        if width % (2 * heads):
            raise ValueError(f"a width of {width} is not a multiple of twice {heads} heads")
        self.config = {"layers": layers, "width": width, "heads": heads, "context": context}
        self.context = context
        self.embed = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        half = width // heads // 2
        waves = LONGEST_WAVE ** (-torch.arange(half) / half)
        self.register_buffer("waves", waves, persistent=False)
        self.apply(self._initialize)
        for block in self.blocks:
            # The sum of all blocks begins as large as one.
            for last in (block.attention.output, block.narrow):
                nn.init.normal_(last.weight, std=0.02 / (2 * layers) ** 0.5)

    @staticmethod
    def _initialize(module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def caches(self) -> list[Cache]:
        heads, size = self.config["heads"], self.config["width"] // self.config["heads"]
        return [Cache(self.embed.weight, heads, self.context, size) for _ in self.blocks]

    def forward(
        self, tokens: Tensor, positions: Tensor, caches: list[Cache] | None = None
    ) -> Tensor:
        """The logits after each of (batch, length) tokens at these (length,) positions.

        With caches, the tokens see those of earlier calls too, and are added. Then positions must
        go on where the last call ended; a call of several tokens must not pass the end of the ring.
        """
        angles = positions[:, None] * self.waves
        turn = angles.cos(), angles.sin()
        places = Places(positions, self.context) if caches else None
        x = self.embed(tokens)
        for block, cache in zip(self.blocks, caches or [None] * len(self.blocks), strict=True):
            x = block(x, turn, cache, places)
        return F.linear(self.norm(x), self.embed.weight)

    def loss(self, tokens: Tensor) -> Tensor:
        """How badly each token of (batch, length) is foretold from those before it."""
        positions = torch.arange(tokens.shape[1] - 1, device=tokens.device)
        logits = self(tokens[:, :-1], positions)
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


class GPTDecoder:
    """A GPT with the caches of one text and the position in it, on its device."""

    def __init__(self, model: GPT) -> None:
        self.model = model.eval()
        self.device = model.embed.weight.device
        self.caches = model.caches()
        self.position = torch.zeros(1, dtype=torch.long, device=self.device)

    def read(self, prompt: Tensor) -> Tensor:
        """Begins a text; (1, vocabulary) logits after it. Only the end of a long one is read."""
        tokens = prompt[-self.model.context :].to(self.device)
        positions = torch.arange(len(tokens), device=self.device)
        self.position.fill_(len(tokens))
        return self.model(tokens[None], positions, self.caches)[:, -1]

    def step(self, token: Tensor) -> Tensor:
        """(1, vocabulary) logits after one more token (1, 1)."""
        logits = self.model(token, self.position, self.caches)[:, -1]
        self.position += 1
        return logits
