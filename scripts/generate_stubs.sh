#!/usr/bin/env bash
# Generates the Python stubs of proto/outrider/v1 into the SDK (client/outrider/v1).
# usage: scripts/generate_stubs.sh [OUTPUT_DIR]
set -euo pipefail
cd "$(dirname "$0")/.."
out="${1:-client}"
python="${PYTHON:-python}"
mkdir -p "$out"
"$python" -m grpc_tools.protoc -I proto \
  --python_out="$out" --pyi_out="$out" --grpc_python_out="$out" --mypy_grpc_out="$out" \
  proto/outrider/v1/*.proto
