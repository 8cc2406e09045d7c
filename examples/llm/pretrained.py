"""Models of Hugging Face's transformers, read from a directory."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from ..command import UsageError, one_line

DTYPES = {"auto": "auto", "float32": torch.float32, "float16": torch.float16} | {
    "bfloat16": torch.bfloat16
}


class PretrainedDecoder:
    """A causal language model with a cache of `length` tokens, on its device.

    The cache of transformers is its static one: tensors of fixed size, in which a tensor counts
    the tokens, so that a captured step counts on by itself.
    """

    def __init__(self, model: torch.nn.Module, length: int) -> None:
        self.model = model.eval()
        self.device = next(model.parameters()).device
        self.length = length
        self.cache = None
        self.position = torch.zeros(1, dtype=torch.long, device=self.device)

    def read(self, prompt: Tensor) -> Tensor:
        """Begins a text of (length,) tokens; (1, vocabulary) logits after it."""
        if len(prompt) >= self.length:
            raise ValueError(f"{len(prompt)} tokens do not fit into a cache of {self.length}")
        if self.cache is None:
            self.cache = static_cache(self.model.config, self.length)
        else:
            self.cache.reset()
        self.position.fill_(len(prompt))
        positions = torch.arange(len(prompt), device=self.device)
        return self._logits(prompt[None].to(self.device), positions)

    def step(self, token: Tensor) -> Tensor:
        """(1, vocabulary) logits after one more token (1, 1)."""
        logits = self._logits(token, self.position)
        self.position += 1
        return logits

    def _logits(self, tokens: Tensor, positions: Tensor) -> Tensor:
        return self.model(
            input_ids=tokens,
            position_ids=positions[None],
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=1,
        ).logits[:, -1]


def static_cache(config, length: int):
    """A cache of `length` tokens in every layer, also in those that look back over a window only.

    The cache of transformers for such a layer is no longer than the window, but counts tokens in
    Python, and a captured step would repeat its first count. The mask alone limits what is seen.
    """
    from transformers import cache_utils

    cache = cache_utils.StaticCache(config, max_cache_len=length)
    for k, layer in enumerate(cache.layers):
        if type(layer) is cache_utils.StaticSlidingWindowLayer:
            cache.layers[k] = cache_utils.StaticLayer(length)
    known = (cache_utils.StaticLayer, cache_utils.LinearAttentionLayer)
    if others := {type(layer).__name__ for layer in cache.layers if type(layer) not in known}:
        raise UsageError(f"there is no cache of fixed size for {min(others)}")
    return cache


class Tokens:
    """A directory's tokenizer: text to tokens, and tokens to text piece by piece."""

    def __init__(self, tokenizer) -> None:
        self.tokenizer = tokenizer

    def encode(self, text: str, *, chat: bool) -> Tensor:
        """(length,) tokens; of a chat, with the marks of a user's turn around them."""
        if not chat:
            return self.tokenizer(text, return_tensors="pt").input_ids[0].long()
        if not self.tokenizer.chat_template:
            raise UsageError("this tokenizer has no chat template: leave out --chat")
        turn = [{"role": "user", "content": text}]
        made = self.tokenizer.apply_chat_template(
            turn, add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        return made.input_ids[0].long()

    def pieces(self) -> "Pieces":
        return Pieces(self.tokenizer)


class Pieces:
    """Text from tokens that come one by one; it comes by words, which later tokens may change."""

    def __init__(self, tokenizer) -> None:
        from transformers import TextStreamer

        class Streamer(TextStreamer):
            def on_finalized_text(self, text: str, stream_end: bool = False) -> None:
                finished.append(text)

        finished: list[str] = []
        self.finished = finished
        self.streamer = Streamer(tokenizer, skip_special_tokens=True)

    def add(self, token: int) -> str:
        """The text that is complete with this token; often none."""
        self.streamer.put(torch.tensor([token]))
        return self._taken()

    def end(self) -> str:
        self.streamer.end()
        return self._taken()

    def _taken(self) -> str:
        text = "".join(self.finished)
        self.finished.clear()
        return text


@contextlib.contextmanager
def _explained(directory: Path, part: str) -> Iterator[None]:
    try:
        yield
    # What transformers raises depends on which file is missing or damaged.
    except Exception as error:
        raise UsageError(f"{directory}: no {part} that can be used: {one_line(error)}") from error


def load_pretrained(
    directory: Path, device: torch.device, dtype: str
) -> tuple[torch.nn.Module, Tokens]:
    """The model on the device and the tokenizer. Nothing is fetched."""
    try:
        from transformers import AutoModelForCausalLM, AutoTokenizer
    except ImportError as error:
        raise UsageError(
            f"--model needs transformers: pip install transformers ({error})"
        ) from error
    if not directory.is_dir():
        raise UsageError(f"{directory} is no directory")
    with _explained(directory, "tokenizer"):
        tokenizer = AutoTokenizer.from_pretrained(directory, local_files_only=True)
    with _explained(directory, "language model"):
        model = AutoModelForCausalLM.from_pretrained(
            directory, local_files_only=True, dtype=DTYPES[dtype]
        )
        model = model.to(device)
    return model, Tokens(tokenizer)


def stops(model: torch.nn.Module) -> frozenset[int]:
    """The tokens that end a text."""
    end = model.generation_config.eos_token_id
    return frozenset([] if end is None else [end] if isinstance(end, int) else end)
