"""What is learned: text as bytes, which are the tokens."""

import codecs
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ..command import UsageError

VOCABULARY = 256
# The last part of the text is held back, to measure on it.
HELD_BACK = 0.05


@dataclass(frozen=True)
class Corpus:
    """Tokens are int64 (N,)."""

    name: str
    train: Tensor
    held_back: Tensor

    def to(self, device: torch.device) -> "Corpus":
        return Corpus(self.name, self.train.to(device), self.held_back.to(device))


def encode(text: str) -> Tensor:
    return torch.tensor(list(text.encode()), dtype=torch.long)


class Bytes:
    """Bytes as tokens: text to tokens, and tokens to text piece by piece."""

    def encode(self, text: str, *, chat: bool) -> Tensor:
        if chat:
            raise UsageError("--chat is for --model")
        return encode(text)

    def pieces(self) -> "Pieces":
        return Pieces()


class Pieces:
    """Text from bytes that come one by one. What is no UTF-8 must not end the program."""

    def __init__(self) -> None:
        self.decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode

    def add(self, token: int) -> str:
        """The character that this byte completes; often none."""
        return self.decode(bytes([token]))

    def end(self) -> str:
        return self.decode(b"", final=True)


def embedded() -> str:
    """The chapters of Python's language reference that `help()` shows: half a megabyte."""
    try:
        from pydoc_data.topics import topics
    except ImportError as error:
        raise UsageError(
            f"this Python lacks the text of help(); give one as --text: {error}"
        ) from error
    return "\n\n".join(topics[name] for name in sorted(topics))


def load(path: Path | None) -> Corpus:
    """The text of a file, or the embedded one."""
    try:
        text = embedded() if path is None else path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not readable text: {error}") from error
    tokens = encode(text)
    cut = round(len(tokens) * (1 - HELD_BACK))
    name = "Python's language reference" if path is None else str(path)
    return Corpus(name, tokens[:cut], tokens[cut:])
