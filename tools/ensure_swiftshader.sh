#!/usr/bin/env bash
# Puts SwiftShader, the second software driver that the tests run on, into .venv/share/swiftshader: Debian's
# chromium-common carries it, and only its two files are taken. Where that package cannot be had, the
# tests that want it are skipped.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/common.sh

TARGET=$PWD/.venv/share/swiftshader
PACKAGE=chromium-common
FILES=(libvk_swiftshader.so vk_swiftshader_icd.json)

[ ! -e "$TARGET/${FILES[1]}" ] || exit 0

download() { (cd "$1" && apt-get download -q "$PACKAGE" >/dev/null 2>&1); }

if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
  say "no SwiftShader: it is taken from Debian's package $PACKAGE"
  exit 0
fi
say "fetching SwiftShader"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if ! download "$work"; then
  if can_apt; then as_root apt-get update -q >/dev/null || true; fi
  download "$work" || true
fi
mkdir "$work/files"
for package in "$work"/*.deb; do
  [ ! -e "$package" ] || dpkg-deb --fsys-tarfile "$package" |
    tar -x -C "$work/files" --strip-components=4 "${FILES[@]/#/./usr/lib/chromium/}" || true
done
if [ ! -e "$work/files/${FILES[1]}" ]; then
  say "no SwiftShader: apt-get could not fetch $PACKAGE with it"
  exit 0
fi
# The description last: it is what tells that the driver is complete.
mkdir -p "$TARGET"
for file in "${FILES[@]}"; do mv "$work/files/$file" "$TARGET/"; done
