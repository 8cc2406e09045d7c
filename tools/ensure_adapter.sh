#!/usr/bin/env bash
# Makes sure that the WebGPU runtime finds an adapter: installs the Vulkan loader and, where that is
# not enough, Mesa's software driver. A machine with a GPU driver keeps it.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/common.sh

STAMP=.venv/.adapter-stamp
[ ! -e "$STAMP" ] || exit 0

# In a process of its own: a broken driver may end the process that asks.
found() { .venv/bin/python tools/check_adapter.py; }

finish() {
  touch "$STAMP"
  exit 0
}

# mirrors_of ORIGIN RELEASE
mirrors_of() {
  apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Component: main' \
    "Origin: $1" "Release: $2"
}

# Dawn refuses the Mesa of Debian 12 (22.3); its backports have a newer one. The mirror is the one that
# this machine already uses.
enable_backports() {
  local suite="$1-backports" mirror option=""
  local keyring=/usr/share/keyrings/debian-archive-keyring.gpg
  # apt knows a source's origin only after an update.
  as_root apt-get update -q >/dev/null || true
  [ -z "$(mirrors_of 'Debian Backports' "$suite")" ] || return 0
  mirror=$(mirrors_of Debian "$1" | head -n 1)
  [ -n "$mirror" ] || return 1
  [ ! -e "$keyring" ] || option="[signed-by=$keyring] "
  echo "deb ${option}${mirror} $suite main" |
    as_root tee "/etc/apt/sources.list.d/$suite.list" >/dev/null
  as_root apt-get update -q >/dev/null || true
}

if found 2>/dev/null; then finish; fi

if can_apt; then
  say "no WebGPU adapter: installing the Vulkan loader"
  apt_install libvulkan1 || true
  if found 2>/dev/null; then finish; fi
  say "still no adapter: installing Mesa's software Vulkan driver"
  codename=$(. /etc/os-release && echo "${ID:-}-${VERSION_CODENAME:-}")
  if [ "$codename" = debian-bookworm ] && enable_backports bookworm; then
    apt_install -t bookworm-backports libvulkan1 mesa-vulkan-drivers || true
  else
    apt_install mesa-vulkan-drivers || true
  fi
fi
if found; then finish; fi

die "No WebGPU adapter. Install your GPU's Vulkan driver and the Vulkan loader, or a current Mesa for a" \
  "software adapter (Debian: libvulkan1 and mesa-vulkan-drivers, on Debian 12 from bookworm-backports;" \
  "Fedora: vulkan-loader and mesa-vulkan-drivers), then run this again."
