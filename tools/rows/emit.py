"""Writes the op tables as C++ and JSON, through the templates here."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import jinja2
from contract.parse import declarations

from rows.model import REGISTERS, Table

TEMPLATES = Path(__file__).parent

# The order of the enumeration Kind of csrc/wgsl/dtype.h: a bool is never computed in, and the bits
# of a float64 are moved as they are.
POINTWISE_KINDS = (*REGISTERS, None, "raw", "raw")

CLASSES = {
    "factory": "Factory",
    "foreach": "Foreach",
    "pointwise": "Pointwise",
    "random": "Random",
    "reduce": "Reduce",
    "scan": "Scan",
}
# `and` and `or` are words of C++.
SUFFIXES = {"reduce": "_op"}


def header(family: str, table: Table) -> str:
    """The enumeration of the rows, and the list of those that serve a stub.

    Or what the family's own template says.
    """
    own = f"{family}.h.j2"
    return _render(own if (TEMPLATES / own).exists() else "header.h.j2", family, table)


def has_definitions(family: str) -> bool:
    """Whether the rows are an array of C++, too."""
    return (TEMPLATES / f"{family}.cpp.j2").exists()


def definitions(family: str, table: Table) -> str:
    """The rows themselves."""
    return _render(f"{family}.cpp.j2", family, table)


def tables(tables: dict[str, Table]) -> str:
    """All rows as JSON, with what they leave to a default."""
    out = {}
    for family, table in tables.items():
        out[family] = {row.op: dataclasses.asdict(row) for row in table.values()}
        for fields in out[family].values():
            del fields["op"]
    return json.dumps(out, indent=1) + "\n"


def library(folder: Path) -> str:
    """The declarations of the WGSL function library as JSON, by name and in library order."""
    out = {}
    for path in sorted(folder.glob("*.wgsl"), key=lambda path: path.stem.encode()):
        text = path.read_text(encoding="utf-8")
        for name, declaration in declarations(text).items():
            above = text[: text.index(declaration)]
            comment = re.search(r"((?:^//[^\n]*\n)*)\Z", above, re.MULTILINE)[1]
            doc = " ".join(line[2:].strip() for line in comment.splitlines())
            out[name] = {"file": path.stem, "doc": doc, "text": declaration}
    return json.dumps(out, indent=1) + "\n"


def _render(template: str, family: str, table: Table) -> str:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(
        quoted=lambda text: json.dumps(text or ""),
        enumerator=lambda dtype: f"k{dtype.capitalize() if dtype.isalpha() else dtype.upper()}",
        camel=lambda text: "".join(part.capitalize() for part in text.split("_")),
        mask=lambda names, of: sum(1 << (of.index(name) + 1) for name in names),
    )
    return environment.get_template(template).render(
        family=family,
        name=CLASSES[family],
        suffix=SUFFIXES.get(family, ""),
        rows=table.values(),
        registers=[*REGISTERS],
        kinds=POINTWISE_KINDS,
    )
