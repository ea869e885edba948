# SPDX-FileCopyrightText: 2026 The omni authors
# SPDX-License-Identifier: BSL-1.0
#
# need COMMAND_OR_FILE:PACKAGE ... installs the Debian packages whose command or file is missing; where that cannot be done, names them
# and ends.
need() {
  local missing=() pair what
  for pair in "$@"; do
    what=${pair%%:*}
    case "$what" in
      /*) [ -e "$what" ] || missing+=("${pair#*:}") ;;
      *) command -v "$what" > /dev/null 2>&1 || missing+=("${pair#*:}") ;;
    esac
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
}
