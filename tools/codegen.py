#!/usr/bin/env python3
"""Generate the operator registrations of the backend at build time.

Reads the op tables (csrc/ops/*/rows.yaml) and csrc/ops/ops.yaml; asks the torchgen package of the
installed torch for the signatures; writes C++.

    python tools/codegen.py --out build/generated          # generate (a file only when it changed)
    python tools/codegen.py --out build/generated --list   # only name the files it would write
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from codegen import emit, plan
from codegen.native import Natives


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of the generated files")
    parser.add_argument("--list", action="store_true", help="name the outputs, write nothing")
    parser.add_argument(
        "--csrc",
        type=Path,
        default=Path(__file__).resolve().parent.parent / "csrc",
        help="source folder with ops/ (default: this repository's)",
    )
    args = parser.parse_args(argv)

    if args.list:
        print("\n".join(str(args.out / name) for name in emit.output_names()))
        return 0
    try:
        chosen = plan.make_plan(args.csrc, Natives.of_installed_torch())
    except plan.PlanError as error:
        print(f"codegen: {error}", file=sys.stderr)
        return 1
    for note in chosen.notes:
        print(f"codegen: {note}", file=sys.stderr)
    for name, text in emit.generate(chosen).items():
        emit.write_if_changed(args.out / name, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
