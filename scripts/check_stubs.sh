#!/usr/bin/env bash
# Fails when client/outrider/v1 is not what proto/ generates.
set -euo pipefail
cd "$(dirname "$0")/.."
fresh="$(mktemp -d)"
trap 'rm -rf "$fresh"' EXIT
scripts/generate_stubs.sh "$fresh" 2>/dev/null
if ! diff -r --exclude=__pycache__ "$fresh/outrider/v1" client/outrider/v1; then
  echo "the generated stubs differ from proto/: run 'make proto' and commit the result" >&2
  exit 1
fi
echo "generated stubs are up to date"
