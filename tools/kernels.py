#!/usr/bin/env python3
"""Generates from the kernel files (csrc/ops/**/*.wgsl) what C++ and Python know of them.

    python tools/kernels.py --root csrc/ops --out build/generated          # generate
    python tools/kernels.py --root csrc/ops --out build/generated --list   # name the outputs only

Writes kernels/NAME.h for each kernel, kernels.cpp with their texts, and kernels.json. A file
that declares operands, and has or imports an entry point, is a kernel; any other is for kernels to
import.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from contract import emit
from contract.model import ContractError
from contract.parse import parse


def kernel_files(root: Path) -> list[Path]:
    def is_kernel(text: str) -> bool:
        has_entry = "\n@compute" in text or re.search(
            r"^import |^@if.* import ", text, re.MULTILINE
        )
        return "\n// @operand " in text and bool(has_entry)

    files = [p for p in root.rglob("*.wgsl") if is_kernel(p.read_text(encoding="utf-8"))]
    return sorted(files, key=lambda path: path.stem.encode())


def check_rest(root: Path, kernels: list[Path]) -> None:
    """A file that declares operands, and is no kernel, is there for others to import."""
    texts = {path: path.read_text(encoding="utf-8") for path in root.rglob("*.wgsl")}
    for path in sorted(texts.keys() - set(kernels)):
        package = "::".join(("package", *path.relative_to(root).with_suffix("").parts))
        if "\n// @operand " in texts[path] and not any(
            f"import {package}::" in text for text in texts.values()
        ):
            raise ContractError(
                f"{path}: it declares operands, but has no entry point (a line that starts with "
                "@compute), and no kernel imports it"
            )


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, required=True, help="folder of the families")
    parser.add_argument("--out", type=Path, required=True, help="folder of the generated files")
    parser.add_argument("--list", action="store_true", help="name the outputs, write nothing")
    args = parser.parse_args(argv)
    files = kernel_files(args.root)
    names = [path.stem for path in files]
    if args.list:
        outputs = ["kernels.cpp", "kernels.json", *(f"kernels/{name}.h" for name in names)]
        print("\n".join(str(args.out / name) for name in outputs))
        return 0
    try:
        if len(set(names)) != len(names):
            raise ContractError("two kernel files have one name")
        check_rest(args.root, files)
        kernels = [parse(path, args.root) for path in files]
    except ContractError as error:
        print(f"kernels: {error}", file=sys.stderr)
        return 1
    emit.write_if_changed(args.out / "kernels.cpp", emit.definitions(kernels))
    emit.write_if_changed(args.out / "kernels.json", emit.contracts(kernels))
    for kernel in kernels:
        emit.write_if_changed(args.out / "kernels" / f"{kernel.name}.h", emit.header(kernel))
    return 0


if __name__ == "__main__":
    sys.exit(main())
