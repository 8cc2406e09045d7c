# Shared by the shell tools; sourced, not run.

say() { printf '[torch-webgpu] %s\n' "$*"; }

die() {
  say "$*" >&2
  exit 1
}

as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  else
    sudo -n "$@"
  fi
}

# True where packages can be installed without asking anybody.
can_apt() {
  command -v apt-get >/dev/null || return 1
  [ "$(id -u)" -eq 0 ] || sudo -n true 2>/dev/null
}

# apt_install [apt-get options] PACKAGE...
apt_install() {
  local install=(env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends)
  # The package lists of a fresh container are empty, so a first failure means 'update'. A third-party
  # source that fails to update is not our business: the second install decides.
  as_root "${install[@]}" "$@" >/dev/null 2>&1 && return
  as_root apt-get update -q >/dev/null || true
  as_root "${install[@]}" "$@" >/dev/null
}
