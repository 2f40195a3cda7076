#!/usr/bin/env bash
# Makes the namespace and the secrets that the manifests name: `create-secrets.sh NAMESPACE KEYS_FILE`.
# KEYS_FILE comes from `outrider keys new`. Secrets that are there already stay as they are.
set -euo pipefail
if [ $# -ne 2 ] || [ ! -f "$2" ]; then
  echo "usage: $0 NAMESPACE KEYS_FILE   (KEYS_FILE: of outrider keys new)" >&2
  exit 2
fi
namespace="$1"
keys_file="$2"

# Makes one from what stands on standard input, which unlike an argument nobody sees in the list of processes.
make_secret() { # NAME KEY
  if kubectl -n "$namespace" get secret "$1" > /dev/null 2>&1; then
    cat > /dev/null
    echo "secret/$1 is there"
  else
    kubectl -n "$namespace" create secret generic "$1" --from-file="$2=/dev/stdin"
  fi
}

random() { head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n'; }

if ! kubectl get namespace "$namespace" > /dev/null 2>&1; then
  kubectl create namespace "$namespace"
fi
random | make_secret outrider-ray-token auth_token
random | make_secret outrider-internal-token token
random | make_secret outrider-redis password
make_secret outrider-api-keys keys.yaml < "$keys_file"
