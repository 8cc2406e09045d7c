"""docs/custom-kernels.md: its blocks of Python run, in order, as one program."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "custom-kernels.md"


def test_blocks_run():
    blocks = list(re.finditer(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.M | re.S))
    assert len(blocks) >= 5
    names: dict[str, object] = {}
    for block in blocks:
        # With the page's line numbers in errors.
        lines = block.string.count("\n", 0, block.start(1))
        exec(compile("\n" * lines + block[1], str(PAGE), "exec"), names)
