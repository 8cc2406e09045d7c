"""Pieces of shader text that are made when a kernel is complete.

Only then is it known which stores became needless; until then a store is a deferred line.
"""

import re
from collections.abc import Iterator

from torch._inductor.codegen.common import IndentedBuffer
from torch._inductor.utils import DeferredLineBase

# These stand for a number in text that is repeated for each.
LANE = "LANE"
TURN = "TURN"  # of a loop that is written out

LET = re.compile(r"let (\w+) = (.*);$", re.S)
DECLARATION = re.compile(r"\b(?:let|var) (\w+)")
WORD = re.compile(r"\b[A-Za-z_]\w*\b")


class Repeated(DeferredLineBase):
    """A block of text, once for each number that a word in it stands for."""

    def __init__(self, body: IndentedBuffer, count: int, word: str = LANE) -> None:
        super().__init__("for each")
        self.body = body
        self.count = count
        self.word = word

    def __call__(self) -> str:
        text = self.body.getvalue()
        blocks = (re.sub(rf"\b{self.word}\b", str(k), text) for k in range(self.count))
        return "\n".join(f"{{\n{block}}}" for block in blocks)

    def _new_line(self, line: str) -> "Repeated":
        return self


class Push(DeferredLineBase):
    """A line that gives an accumulator one value. Where a loop is unrolled, the accumulator gets
    four values at once instead, from an array."""

    def __init__(self, line: str, array: str, value: str, update: str) -> None:
        super().__init__(line)
        self.array = array
        self.value = value
        self.update = update  # for the values of `array`

    def to_array(self) -> str:
        """The line that gives the value to the array instead."""
        return f"{self.array}[{LANE}] = {self.value};"

    def __call__(self) -> str:
        return self.line

    def _new_line(self, line: str) -> "Push":
        return Push(line, self.array, self.value, self.update)


def renamed(buffer: IndentedBuffer, names: dict[str, str]) -> Iterator[str | DeferredLineBase]:
    """The buffer's lines with other words for some."""
    for line in buffer._lines:
        if isinstance(line, Repeated):
            body = IndentedBuffer()
            body.writelines(renamed(line.body, names))
            yield Repeated(body, line.count, line.word)
            continue
        text = line if isinstance(line, str) else line.line
        text = WORD.sub(lambda word: names.get(word[0], word[0]), text)
        yield text if isinstance(line, str) else line._new_line(text)


def declared(*buffers: IndentedBuffer) -> set[str]:
    """The names that plain lines of the buffers declare."""
    return {
        match[1]
        for buffer in buffers
        for line in buffer._lines
        if isinstance(line, str)
        for match in DECLARATION.finditer(line)
    }


def take_invariant(buffers: list[IndentedBuffer], changing: set[str]) -> IndentedBuffer:
    """Takes the `let` lines that depend on nothing in `changing` out of the buffers.

    Inductor repeats in every element what depends on its row only, such as an rsqrt of a variance,
    and drivers leave calls that branch where they are. What stands in a branch stays there.
    """
    taken = IndentedBuffer()
    for buffer in buffers:
        rest = []
        depth = 0
        for line in buffer._lines:
            text = line if isinstance(line, str) else ""
            depth += text.count("{") - text.count("}")
            match = LET.match(text)
            if match and depth == 0 and changing.isdisjoint(WORD.findall(match[2])):
                taken.writeline(text)
                continue
            changing.update(found[1] for found in DECLARATION.finditer(text))
            rest.append(line)
        buffer._lines[:] = rest
    return taken


def indented(text: str) -> str:
    """The text with each line indented by the braces around it."""
    lines = []
    depth = 0
    for line in text.splitlines():
        line = line.strip()
        if not line:
            continue
        code = line.split("//")[0]
        closes = len(code) - len(code.lstrip("}"))
        lines.append("  " * (depth - closes) + line)
        depth += code.count("{") - code.count("}")
    return "\n".join(lines) + "\n"
