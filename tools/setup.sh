#!/usr/bin/env bash
# Prepares .venv and the system. Safe to run again: what is done is skipped.
#
#   tools/setup.sh [development | wheel]
#
# development (the default): all that building, testing and documenting take, and an adapter. wheel: what
# building a wheel takes, and no adapter.
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
case ${1:-development} in
  development) GROUPS_WANTED=(build test demo lint docs wheel) ;;
  wheel) GROUPS_WANTED=(build wheel) ;;
  *) die "usage: tools/setup.sh [development | wheel]" ;;
esac
FOR=${1:-development}
STAMP=$VENV/.setup-stamp-$FOR
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
  [ "$FOR" = wheel ] || [ -e /usr/include/doctest/doctest.h ] || missing+=(doctest-dev)
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
  "$VENV/bin/python" tools/dev_install.py --requirements "${GROUPS_WANTED[@]}" >"$VENV/requirements.txt"
  pip_install -r "$VENV/requirements.txt" "${tools[@]}"
  [ "$FOR" = wheel ] || "$VENV/bin/python" tools/dev_install.py
  # CMake remembers the interpreter and its torch; configure again.
  rm -f build/build.ninja build/CMakeCache.txt
}

# True if .venv was made for this, or for more.
is_done() {
  "$VENV/bin/python" -c '' 2>/dev/null || return 1
  local stamp
  for stamp in "$STAMP" "$VENV/.setup-stamp-development"; do
    [ "$(cat "$stamp" 2>/dev/null)" != "$STATE" ] || return 0
  done
  return 1
}

if ! is_done; then
  system_packages
  venv
  python_packages
  echo "$STATE" >"$STAMP"
fi
[ "$FOR" = wheel ] || tools/ensure_adapter.sh
