#!/usr/bin/env bash
# Builds a wheel for .venv's Python and torch into dist/. On Linux its tag says with which C library it
# runs: that of the system it was built on, or a later one.
set -euo pipefail
cd "$(dirname "$0")/.."

PYTHON=.venv/bin/python
built=$(mktemp -d)
trap 'rm -rf "$built"' EXIT
# Under the compiler name that CMake picks by itself, or ccache takes it for another compiler.
CXX=${CXX:-c++} "$PYTHON" -m pip wheel --disable-pip-version-check --no-build-isolation --no-deps -w "$built" .
mkdir -p dist
rm -f dist/torch_webgpu-*.whl
if [ "$(uname)" = Linux ]; then
  # torch's libraries come with torch.
  "$PYTHON" -m auditwheel repair --exclude 'libtorch*' --exclude 'libc10*' -w dist "$built"/torch_webgpu-*.whl
else
  mv "$built"/torch_webgpu-*.whl dist/
fi
