# SPDX-FileCopyrightText: 2026 The omni authors
# SPDX-License-Identifier: BSL-1.0
#
# need COMMAND_OR_FILE:PACKAGE ... installs the Debian packages whose command or file is missing; where that cannot be done, names them
# and ends. A file that begins with include/ is looked for where compilers look; others may be patterns.
present() { # command or file
  local prefix
  case "$1" in
    include/*) for prefix in /usr /usr/local /opt/homebrew; do [ -e "$prefix/$1" ] && return 0; done; return 1 ;;
    /*) compgen -G "$1" > /dev/null ;;
    *) command -v "$1" > /dev/null 2>&1 ;;
  esac
}
need() {
  local missing=() pair
  for pair in "$@"; do
    present "${pair%%:*}" || missing+=("${pair#*:}")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  local sudo=()
  if [ "$(id -u)" -ne 0 ]; then sudo=(sudo -n); fi
  if ! command -v apt-get > /dev/null 2>&1 || { [ "$(id -u)" -ne 0 ] && ! sudo -n true 2> /dev/null; }; then
    echo "missing, and not to be installed here (no apt-get, or neither root nor sudo): ${missing[*]}" >&2
    exit 1
  fi
  echo "# installing ${missing[*]}" >&2
  local log
  log=$(mktemp)
  { "${sudo[@]}" apt-get update && "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}"; } \
    > "$log" 2>&1 < /dev/null || { cat "$log"; echo "apt-get could not install: ${missing[*]}" >&2; exit 1; }
  rm -f "$log"
  for pair in "$@"; do
    present "${pair%%:*}" || { echo "${pair%%:*} is still missing, after installing ${pair#*:}" >&2; exit 1; }
  done
}
# want COMMAND_OR_FILE:PACKAGE ...: the same for what is tested only where it is; nothing happens where it cannot be had.
want() {
  local pair
  command -v apt-get > /dev/null 2>&1 || return 0
  for pair in "$@"; do
    present "${pair%%:*}" && continue
    apt-cache show "${pair#*:}" > /dev/null 2>&1 || { [ "$(id -u)" -eq 0 ] && apt-get update > /dev/null 2>&1 < /dev/null; }
    (need "$pair") || echo "# without ${pair#*:}" >&2
  done
}
