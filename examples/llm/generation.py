"""Writing: one token after the other, each chosen on the device."""

from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor

from .modes import Mode, Repeated


def choose(logits: Tensor, temperature: float, top_k: int) -> Tensor:
    """(batch, vocabulary) logits to (batch, 1) tokens, without asking the host.

    At temperature 0 the most probable token; otherwise one of the `top_k` most probable at random.
    torch.multinomial would check its probabilities on the host. The largest of probabilities over
    exponential random numbers has the same distribution, as the first of several decays has.
    """
    if temperature == 0:
        return logits.argmax(-1, keepdim=True)
    best, tokens = logits.topk(top_k)
    probabilities = torch.softmax(best / temperature, -1)
    times = torch.empty_like(probabilities).exponential_()
    return tokens.gather(-1, (probabilities / times).argmax(-1, keepdim=True))


class Decoder(Protocol):
    """A network and what it has read so far, in tensors on its device that keep their places."""

    device: torch.device

    def read(self, prompt: Tensor) -> Tensor:
        """Begins a text of (length,) tokens; (1, vocabulary) logits after it."""

    def step(self, token: Tensor) -> Tensor:
        """(1, vocabulary) logits after one more token (1, 1)."""


class Writer:
    """Continues one text.

    A step reads the last token where the step before left it, on the device, and the decoder
    writes keys and values into caches of fixed size. So steps follow each other without the host,
    which only reads each token.
    """

    def __init__(self, decoder: Decoder, mode: Mode, *, temperature: float, top_k: int) -> None:
        self.decoder, self.temperature, self.top_k = decoder, temperature, top_k
        self.token = torch.zeros(1, 1, dtype=torch.long, device=decoder.device)
        self.predict = mode.compile(self._predict)
        self.step = Repeated(self._step, mode)

    def _choose(self, logits: Tensor) -> Tensor:
        return choose(logits.float(), self.temperature, min(self.top_k, logits.shape[-1]))

    def _predict(self, token: Tensor) -> Tensor:
        return self._choose(self.decoder.step(token))

    def _step(self) -> None:
        self.token.copy_(self.predict(self.token))

    @torch.no_grad()
    def read(self, prompt: Tensor) -> int:
        """Begins a text; returns the first token after it."""
        # Prompts have many lengths, so this is never compiled or captured.
        self.token.copy_(self._choose(self.decoder.read(prompt)))
        return self.token.item()

    @torch.no_grad()
    def tokens(self, count: int) -> Iterator[int]:
        for _ in range(count):
            self.step()
            yield self.token.item()
