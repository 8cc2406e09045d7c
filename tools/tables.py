#!/usr/bin/env python3
"""Generates from the op tables (csrc/ops/<family>/rows.yaml) what C++ and Python know of them.

    python tools/tables.py --csrc csrc --out build/generated          # generate
    python tools/tables.py --csrc csrc --out build/generated --list   # name the outputs only

Writes tables/FAMILY.h and mostly tables/FAMILY.cpp for each table, tables.json with all rows, and
library.json with the functions of csrc/wgsl/lib that their expressions call.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from contract.emit import write_if_changed
from rows import emit
from rows.model import FAMILIES, RowError, load_all


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--csrc", type=Path, required=True, help="source folder with ops/ and wgsl/"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of the generated files")
    parser.add_argument("--list", action="store_true", help="name the outputs, write nothing")
    args = parser.parse_args(argv)
    if args.list:
        names = [f"tables/{family}.h" for family in FAMILIES]
        names += [f"tables/{family}.cpp" for family in FAMILIES if emit.has_definitions(family)]
        print("\n".join(str(args.out / name) for name in [*names, "tables.json", "library.json"]))
        return 0
    try:
        tables = load_all(args.csrc)
    except RowError as error:
        print(f"tables: {error}", file=sys.stderr)
        return 1
    for family, table in tables.items():
        write_if_changed(args.out / "tables" / f"{family}.h", emit.header(family, table))
        if emit.has_definitions(family):
            write_if_changed(args.out / "tables" / f"{family}.cpp", emit.definitions(family, table))
    write_if_changed(args.out / "tables.json", emit.tables(tables))
    write_if_changed(args.out / "library.json", emit.library(args.csrc / "wgsl" / "lib"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
