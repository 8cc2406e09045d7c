#!/usr/bin/env bash
# Compiles csrc/runtime, where all that differs between operating systems lies, for macOS and Windows. zig
# brings their headers and a compiler for them, so that neither is needed. Nothing is linked.
set -euo pipefail
cd "$(dirname "$0")/.."

PYTHON=$PWD/.venv/bin/python
header=$("$PYTHON" -c 'import importlib.util as u, os; print(os.path.dirname(u.find_spec("wgpu").origin))')/resources
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

compile() {
  local target=$1 source=$2
  "$PYTHON" -m ziglang c++ -target "$target" -std=c++20 -Wall -Wextra -Wno-unused-parameter -Werror \
    -c -o "$out/$target-${source//\//-}.o" -Icsrc -I"$header" "$source"
}
export -f compile
export PYTHON header out

check() {
  local target=$1 foreign=$2 sources
  sources=$(find csrc/runtime -name '*.cpp' ! -name "*_$foreign.cpp" | sort)
  echo "$target: $(wc -l <<<"$sources") files"
  xargs -P "$(getconf _NPROCESSORS_ONLN)" -I{} bash -c 'compile "$1" "$2"' _ "$target" {} <<<"$sources"
}

check aarch64-macos windows
check x86_64-windows-gnu posix
