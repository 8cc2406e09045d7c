#!/usr/bin/env bash
# Installs the wheel of dist/ into a fresh environment, and uses it there from Python and from C++: what
# the wheel lacks, the source tree cannot lend it. `make wheel` comes first.
set -euo pipefail
cd "$(dirname "$0")/.."

PYTHON=$PWD/.venv/bin/python
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
wheels=(dist/torch_webgpu-*.whl)
if [ ${#wheels[@]} -ne 1 ]; then
  echo "dist/ holds ${#wheels[@]} wheels: ${wheels[*]}; which one?" >&2
  exit 1
fi
wheel=$PWD/${wheels[0]}
source_dir=$PWD

# The environment borrows the packages of .venv, torch among them, but not the development install.
"$PYTHON" -m venv "$work/venv"
site=$("$work/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
"$PYTHON" - "$site" <<'PY'
import pathlib, sys

# The folders alone: a line with `import` or another .pth file would bring the source tree back.
folders = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
pathlib.Path(sys.argv[1], "borrowed.pth").write_text("\n".join(folders) + "\n")
PY
"$work/venv/bin/python" -m pip install -q --no-deps --force-reinstall "$wheel"

# Away from the source tree, which Python would import first.
cd "$work"
cat >check.py <<'PY'
import importlib.metadata
import json
import pathlib
import sys

import torch
import torch_webgpu
from torch_webgpu import wgsl

package = pathlib.Path(torch_webgpu.__file__).parent
assert "site-packages" in package.parts, package
for name in ("kernels", "tables", "library"):
    assert json.loads((package / "share" / "wgsl" / f"{name}.json").read_text()), name
for name in ("py.typed", "_C.pyi", "include/webgpu.h", "include/torch_webgpu/backend/tensor.h"):
    assert (package / name).is_file(), name
assert wgsl.kernels() and wgsl.expression("sin", torch.float32)
assert (torch.ones(3, device="webgpu") + 1).tolist() == [2.0, 2.0, 2.0]
built_for = ".".join(torch.__version__.split(".")[:2])
assert f"torch=={built_for}.*" in importlib.metadata.requires("torch-webgpu")
version = importlib.metadata.version("torch-webgpu")
assert version == f"{torch_webgpu.__version__}+torch{built_for}", version
if sys.platform == "linux":  # auditwheel has said with which C library it runs
    tag = importlib.metadata.distribution("torch-webgpu").read_text("WHEEL")
    assert "manylinux" in tag, tag
print(torch_webgpu.cmake_prefix_path)
PY
prefix=$("$work/venv/bin/python" check.py | tail -n 1)

torch=$("$work/venv/bin/python" -c 'import os, torch; print(os.path.dirname(torch.__file__))')
cmake -S "$source_dir/examples/cpp" -B build -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$prefix" \
  -DTORCH_WEBGPU_TORCH_DIR="$torch"
cmake --build build
TORCH_WEBGPU_RUNTIME=$("$work/venv/bin/python" - <<'PY'
import importlib.util, os

folder = os.path.dirname(importlib.util.find_spec("wgpu").origin)
print(os.path.join(folder, "resources", "libwgpu_native-release.so"))
PY
)
export TORCH_WEBGPU_RUNTIME
build/spirals
