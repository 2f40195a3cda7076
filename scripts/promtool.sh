#!/usr/bin/env bash
# Prints the path of Prometheus' promtool: $PROMTOOL, the one that is installed, or one taken from the Debian package
# into the user's cache, which needs no root.
set -euo pipefail
if [ -n "${PROMTOOL:-}" ]; then echo "$PROMTOOL"; exit; fi
if command -v promtool; then exit; fi
cache="${XDG_CACHE_HOME:-$HOME/.cache}/outrider/promtool"
if [ ! -x "$cache/usr/bin/promtool" ]; then
  if ! { command -v apt-get && command -v dpkg; } >/dev/null; then
    echo "promtool is needed: install Prometheus (https://prometheus.io/download) or set PROMTOOL to its promtool" >&2
    exit 1
  fi
  folder="$(mktemp -d)"
  trap 'rm -rf "$folder"' EXIT
  # Package lists of our own where the system's are missing or old: that needs no root either.
  own=(-o "Dir::State::lists=$folder/lists" -o "Dir::Cache=$folder/cache")
  mkdir -p "$folder/lists/partial" "$folder/cache/archives/partial"
  fetch() { (cd "$folder" && apt-get "$@" download prometheus); }
  { fetch || { apt-get "${own[@]}" update && fetch "${own[@]}"; }; } >"$folder/log" 2>&1 || {
    cat "$folder/log" >&2
    echo "promtool is needed: 'apt-get download prometheus' failed; install Prometheus, or set PROMTOOL to its promtool" >&2
    exit 1
  }
  mkdir -p "$cache"
  dpkg -x "$folder"/prometheus_*.deb "$folder/files"
  mkdir -p "$cache/usr/bin"
  mv "$folder/files/usr/bin/promtool" "$cache/usr/bin/promtool"
fi
echo "$cache/usr/bin/promtool"
