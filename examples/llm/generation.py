"""Writing: one token after the other, each chosen on the device."""

from collections.abc import Iterator

import torch
from torch import Tensor

from .model import GPT
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


class Writer:
    """Continues one text.

    A step reads the last token and its position where the step before left them, on the device, and
    writes keys and values into caches of fixed size. So steps follow each other without the host,
    which only reads each token.
    """

    def __init__(self, model: GPT, mode: Mode, *, temperature: float, top_k: int) -> None:
        device = model.embed.weight.device
        self.model, self.temperature, self.top_k = model.eval(), temperature, top_k
        self.caches = model.caches()
        self.token = torch.zeros(1, 1, dtype=torch.long, device=device)
        self.position = torch.zeros(1, dtype=torch.long, device=device)
        self.predict = mode.compile(self._predict)
        self.step = Repeated(self._step, mode)

    def _predict(self, tokens: Tensor, positions: Tensor) -> Tensor:
        logits = self.model(tokens, positions, self.caches)
        return choose(logits[:, -1], self.temperature, self.top_k)

    def _step(self) -> None:
        self.token.copy_(self.predict(self.token, self.position))
        self.position += 1

    @torch.no_grad()
    def read(self, prompt: Tensor) -> int:
        """Begins a text; returns the first token after it. Only the end of a long one is read."""
        tokens = prompt[-self.model.context :].to(self.token.device)
        positions = torch.arange(len(tokens), device=tokens.device)
        # Prompts have many lengths, so this is never compiled or captured.
        self.token.copy_(self._predict(tokens[None], positions))
        self.position.fill_(len(tokens))
        return self.token.item()

    @torch.no_grad()
    def tokens(self, count: int) -> Iterator[int]:
        for _ in range(count):
            self.step()
            yield self.token.item()
