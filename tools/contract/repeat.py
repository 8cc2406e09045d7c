"""`@repeat(i, 4)` in kernel files: text that is written several times.

Compilers keep arrays out of registers where an index is not constant, and WGSL has no arrays of
subgroup matrices. So such values have names with numbers, and what is done with each is text.
"""

from __future__ import annotations

import re

from contract.model import ContractError

REPEAT = re.compile(r"@repeat\(([a-z]), (?:(\d+)\.\.)?(\d+)\)\s*")
CONDITION = re.compile(r"(?:@(?:if|elif)\(.*\)|@else)\s*$")


def expand(text: str) -> str:
    """The text with every repetition written out, the outer one first.

    `@repeat(i, 4) STATEMENT;` is the statement for i = 0 to 3, `@repeat(i, 1..4)` for 1 to 3. `$i`
    in it is the number. Of a block in braces the content is repeated without the braces, so that
    what it declares is known behind it. Raises ContractError.
    """
    while match := REPEAT.search(_without_comments(text)):
        line = text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
        if CONDITION.search(line):
            raise ContractError(
                f"{match[0].strip()}: a condition stands behind it, where each copy gets it"
            )
        end = _end(text, match.end())
        body = text[match.end() : end]
        indent = line if not line.strip() else ""
        if body.startswith("{"):
            body = _content(body, indent)
        name, first, stop = match[1], int(match[2] or 0), int(match[3])
        if stop <= first:
            raise ContractError(f"{match[0].strip()}: there is no number from {first} up to {stop}")
        if f"${name}" not in body:
            raise ContractError(f"{match[0].strip()}: nothing in it depends on ${name}")
        copies = [body.replace(f"${name}", str(k)) for k in range(first, stop)]
        text = text[: match.start()] + f"\n{indent}".join(copies) + text[end:]
    if stray := re.search(r"@repeat.*|\$\w*", _without_comments(text)):
        raise ContractError(f"{stray[0]}: a repetition is `@repeat(i, 4)`, and $i stands in it")
    return text


def _without_comments(text: str) -> str:
    """The text with blanks in place of its comments, so that places are the same."""
    return re.sub(r"//.*", lambda comment: " " * len(comment[0]), text)


def _end(text: str, start: int) -> int:
    """Where the statement or the block ends that starts there."""
    code = _without_comments(text)
    depth = 0
    for i in range(start, len(code)):
        if code[i] in "([{":
            depth += 1
        elif code[i] in ")]}":
            depth -= 1
            if depth == 0 and code[i] == "}":
                return i + 1
        elif code[i] == ";" and depth == 0:
            return i + 1
        if depth < 0:
            break
    raise ContractError("what @repeat repeats has no end")


def _content(block: str, indent: str) -> str:
    """The lines of a block, as deep as the block itself is."""
    lines = block[1:-1].strip().split("\n")
    return "\n".join(
        line.strip() if k == 0 else re.sub(rf"^{indent}  ", indent, line)
        for k, line in enumerate(lines)
    )
