"""Values that one loop over a row computes, and a later one would compute again.

Inductor repeats an expression in every loop that needs it: a softmax takes exponentials for the sum
of a row, and once more for the results. Where a row stays in registers (`WgslKernel.turns`), so do
these values.
"""

import re
from collections.abc import Callable

from torch._inductor.codegen.common import IndentedBuffer
from torch._inductor.utils import DeferredLineBase

from torch_webgpu.inductor import tables
from torch_webgpu.inductor.text import DECLARATION, LANE, LET, TURN, WORD

# Calls of the library take many instructions, operators one.
_CALL = re.compile(r"\b(?!abs_f|neg_f)\w+_f\(")
_LONGEST = 2000  # characters of an expression; longer ones are not followed


class _Line(DeferredLineBase):
    """A line that is dropped unless it is wanted when the kernel is complete."""

    def __init__(self, line: str, value: "_Value") -> None:
        super().__init__(line)
        self.value = value

    def __call__(self) -> str | None:
        return self.line if self.value.is_wanted else None

    def _new_line(self, line: str) -> "_Line":
        return _Line(line, self.value)


class _Value:
    """A value of each element that the loops so far have computed."""

    def __init__(self, array: str) -> None:
        self.array = array
        self.is_wanted = False


class KeptValues:
    """Sees each loop of a kernel before it is written."""

    def __init__(self) -> None:
        self._values: dict[str, _Value] = {}  # by the expression, in terms of what does not change
        self._invariant: dict[str, str] = {}  # expressions of variables that loops have in common

    def see_invariant(self, lines: IndentedBuffer) -> None:
        """Lines that stand before a loop: loops may have the same under other names."""
        for line in lines._lines:
            if isinstance(line, str) and (match := LET.match(line)):
                self._invariant[match[1]] = self._whole(match[2], self._invariant)

    @staticmethod
    def _whole(expression: str, expressions: dict[str, str]) -> str:
        """The expression with those of its variables in their places."""
        whole = tables.substitute(expression, expressions)
        return whole if WORD.fullmatch(whole) else f"({whole})"

    def see_loop(
        self,
        lines: list[IndentedBuffer],
        changing: set[str],
        type_of: Callable[[str], str | None],
        may_keep: Callable[[], bool],
    ) -> IndentedBuffer:
        """Replaces what an earlier loop computed, and notes what this loop computes.

        lines: the loop's body. changing: names that mean something else in another loop or turn.
        type_of: the type of a variable in WGSL, None if it is not known. may_keep: asks for the
        registers for one more value, when a value is first wanted. Returns the declarations of
        arrays, to stand before the loop.
        """
        arrays = IndentedBuffer()
        expressions = dict(self._invariant)
        changing = set(changing)
        for buffer in lines:
            depth = 0
            rest: list[object] = []
            for line in buffer._lines:
                rest.append(line)
                text = line if isinstance(line, str) else ""
                match = LET.match(text)
                depth += text.count("{") - text.count("}")
                if not match or depth:
                    changing.update(DECLARATION.findall(text))
                    continue
                name, expression = match.groups()
                whole = self._whole(expression, expressions)
                if not changing.isdisjoint(WORD.findall(whole)) or len(whole) > _LONGEST:
                    changing.add(name)
                    continue
                expressions[name] = whole
                kind = type_of(name)
                if not _CALL.search(expression) or kind is None:
                    continue
                known = self._values.get(whole)
                if known is None:
                    value = _Value(f"computed{len(self._values)}")
                    self._values[whole] = value
                    arrays.writeline(_Line(f"var {value.array} = {kind}();", value))
                    rest.append(_Line(f"{value.array}[{TURN}][{LANE}] = {name};", value))
                elif known.is_wanted or may_keep():
                    known.is_wanted = True
                    rest[-1] = f"let {name} = {known.array}[{TURN}][{LANE}];"
            buffer._lines[:] = rest
        return arrays
