"""`@repeat(i, 4)` and `@repeat(x, {a, b})` in kernel files: text that is written several times.

Compilers keep arrays out of registers where an index is not constant, and WGSL has no arrays of
subgroup matrices. So such values have names with numbers, and what is done with each is text. Nor
has WGSL functions that take an operand: one for each is text too.
"""

from __future__ import annotations

import re

from contract.model import ContractError

REPEAT = re.compile(r"@repeat\(([a-z]), (?:(?:(\d+)\.\.)?(\d+)|\{(\w+(?:, \w+)*)\})\)\s*")
CONDITION = re.compile(r"(?:@(?:if|elif)\([^;{}]*\)|@else)\s*$")
ALTERNATIVE = re.compile(r"\s*@(?:elif|else)\b")
ELSE = re.compile(r"\s*else\b")
# `${i}`, or `$i` where no letter follows but the u of a type.
USE = re.compile(r"\$(?:\{([a-z])\}|([a-z])(?![A-Za-tv-z_])(?!u\w))")


def expand(text: str, line: int = 1, letters: str = "") -> str:
    """The text, whose first line has the number `line`, with every repetition written out.

    `@repeat(i, 4) STATEMENT;` is the statement for i = 0 to 3, `@repeat(i, 1..4)` for 1 to 3, and
    `@repeat(x, {a, b})` for the words a and b. `$i` or `${i}` in it is the number or the word. Of a
    block in braces the content is repeated without the braces, so that what it declares is known
    behind it. `letters` are those of the repetitions around the text. Raises ContractError with the
    line's number.
    """
    code = _without_comments(text)

    def fail(at: int, why: str) -> None:
        raise ContractError(f"{line + code.count(chr(10), 0, at)}: {why}")

    def copied(start: int, end: int) -> str:
        """That part, which has no repetition."""
        if (stray := code.find("@repeat", start, end)) >= 0:
            fail(stray, "it is @repeat(i, 4), @repeat(i, 1..4) or @repeat(x, {a, b})")
        for sign in re.finditer(r"\$\{?\w*\}?", code[start:end]):
            use = USE.match(code, start + sign.start())
            if use is None or (use[1] or use[2]) not in letters:
                fail(start + sign.start(), f"{sign[0]} is nothing that is repeated")
        return text[start:end]

    written, at = [], 0
    while match := REPEAT.search(code, at):
        start, name = match.start(), match[1]
        values = _values(match)
        end = _end(code, match.end())
        if "/*" in code:
            fail(start, "a file with repetitions has no comments in /* */")
        if CONDITION.search(code, 0, start):
            fail(start, "write the condition behind @repeat, so that each copy gets it")
        if end < 0:
            fail(start, "what is repeated is a statement that ends with `;`, or a block")
        if ALTERNATIVE.match(code, match.end()) or ALTERNATIVE.match(code, end):
            fail(start, "write the statement and its alternatives in one block")
        if name in letters:
            fail(start, f"{name} is the letter of a repetition around it")
        if not values:
            fail(start, "there are no such numbers")
        if not any(name in use.groups() for use in USE.finditer(code, match.end(), end)):
            fail(start, f"nothing in it depends on ${name}")
        body_line = line + code.count("\n", 0, match.end())
        body = expand(text[match.end() : end], body_line, letters + name)
        before = text[text.rfind("\n", 0, start) + 1 : start]
        indent = before if not before.strip() else ""
        if body.startswith("{"):
            body = _content(body, indent)
        own = re.compile(rf"\$(?:{name}|\{{{name}\}})")
        copies = (own.sub(value, body) for value in values)
        written += [copied(at, start), f"\n{indent}".join(copies)]
        at = end
    return "".join((*written, copied(at, len(text))))


def _values(repeat: re.Match[str]) -> list[str]:
    """The numbers or words that a repetition is for."""
    if repeat[4]:
        return repeat[4].split(", ")
    return [str(k) for k in range(int(repeat[2] or 0), int(repeat[3]))]


def _without_comments(text: str) -> str:
    """The text with blanks in place of its comments, so that places are the same."""
    return re.sub(r"//.*", lambda comment: " " * len(comment[0]), text)


def _end(code: str, start: int) -> int:
    """Where the statement or the block ends that starts there, or -1."""
    code = re.sub(r"\$\{\w*\}", lambda use: "$" * len(use[0]), code)  # whose braces are no block
    depth = 0
    for i in range(start, len(code)):
        if code[i] in "([{":
            depth += 1
        elif code[i] in ")]}":
            depth -= 1
            if depth < 0:
                return -1
            if depth == 0 and code[i] == "}" and not ELSE.match(code, i + 1):
                return i + 1
        elif code[i] == ";" and depth == 0:
            return i + 1
    return -1


def _content(block: str, indent: str) -> str:
    """The lines of a block, as deep as the block itself is."""
    lines = block[1:-1].strip().split("\n")
    return "\n".join(
        line.strip() if k == 0 else re.sub(rf"^{indent}  ", indent, line)
        for k, line in enumerate(lines)
    )
