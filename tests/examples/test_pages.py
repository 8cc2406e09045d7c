"""Pages whose blocks of Python are one program, run in their order."""

from pathlib import Path

import pytest
from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [DOCS / "custom-kernels.md", *sorted((DOCS / "tutorials").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where they write files
    blocks = list(Sybil([PythonCodeBlockParser()]).parse(page).examples())
    assert len(blocks) >= 5
    for block in blocks:
        block.evaluate()
