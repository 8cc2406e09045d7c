#!/usr/bin/env bash
# Prepares .venv and the system for a development build. Safe to run again: what is done is skipped.
#
#   PYTHON      interpreter to build the environment from        (python3)
#   VENV_FLAGS  flags of `python -m venv`                        (--system-site-packages)
#   TORCH_SPEC  torch to install; without it only where no suitable one is found
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/common.sh

PYTHON=${PYTHON:-python3}
VENV_FLAGS=${VENV_FLAGS---system-site-packages}
TORCH_SPEC=${TORCH_SPEC:-}
DEFAULT_TORCH=torch==2.13.0
VENV=.venv
STAMP=$VENV/.setup-stamp
# Nothing here needs the device, and a half-built backend must not break `import torch`.
export TORCH_DEVICE_BACKEND_AUTOLOAD=0

# What the environment depends on; a change of it repeats the set-up.
state() {
  cat pyproject.toml tools/setup.sh tools/dev_install.py
  echo "$PWD $TORCH_SPEC $VENV_FLAGS"
}
STATE=$(state | cksum)

system_packages() {
  local missing=()
  command -v g++ >/dev/null || command -v clang++ >/dev/null || missing+=(g++)
  command -v ccache >/dev/null || missing+=(ccache)
  [ -e /usr/include/doctest/doctest.h ] || missing+=(doctest-dev)
  "$PYTHON" -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
  "$PYTHON" -c 'import os, sysconfig as s; os.stat(s.get_path("include") + "/Python.h")' \
    2>/dev/null || missing+=(python3-dev)
  [ ${#missing[@]} -gt 0 ] || return 0
  if can_apt; then
    say "installing ${missing[*]}"
    apt_install "${missing[@]}" || die "apt-get could not install: ${missing[*]}"
  else
    say "not installed: ${missing[*]}. If the build fails for want of one, install it with your" \
      "package manager (all but ccache are required)."
  fi
}

venv() {
  "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
    die "$PYTHON is older than Python 3.10; name another one with PYTHON=..."
  # A venv whose interpreter is gone (a moved tree, an upgraded system) is made anew.
  if ! "$VENV/bin/python" -c '' 2>/dev/null; then
    say "creating $VENV ($("$PYTHON" --version))"
    # shellcheck disable=SC2086
    "$PYTHON" -m venv --clear $VENV_FLAGS "$VENV"
  fi
}

pip_install() { "$VENV/bin/python" -m pip install -qq --disable-pip-version-check "$@"; }

torch_suits() {
  "$VENV/bin/python" - 2>/dev/null <<'PY'
import sys, torch
version = tuple(int(part) for part in torch.__version__.split(".")[:2])
sys.exit(not (2, 11) <= version < (2, 16))
PY
}

python_packages() {
  if [ -n "$TORCH_SPEC" ]; then
    say "installing $TORCH_SPEC"
    pip_install "$TORCH_SPEC"
  elif ! torch_suits; then
    say "no torch >=2.11,<2.16: installing $DEFAULT_TORCH"
    pip_install "$DEFAULT_TORCH"
  fi
  say "installing Python packages"
  local tools=()
  command -v ninja >/dev/null || tools+=(ninja)
  command -v cmake >/dev/null || tools+=("cmake>=3.22")
  "$VENV/bin/python" tools/dev_install.py --requirements build test demo lint docs >"$VENV/requirements.txt"
  pip_install -r "$VENV/requirements.txt" "${tools[@]}"
  "$VENV/bin/python" tools/dev_install.py
  # CMake remembers the interpreter and its torch; configure again.
  rm -f build/build.ninja build/CMakeCache.txt
}

if [ "$(cat "$STAMP" 2>/dev/null)" != "$STATE" ] || ! "$VENV/bin/python" -c '' 2>/dev/null; then
  system_packages
  venv
  python_packages
  echo "$STATE" >"$STAMP"
fi
tools/ensure_adapter.sh
