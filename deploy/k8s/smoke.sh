#!/usr/bin/env bash
# Is an installation alive, and does it keep its promises? For a real cluster: `smoke.sh NAMESPACE [PROMPT]`.
# Needs kubectl, and `outrider` with OUTRIDER_API_KEY set where keys are asked for. It deletes one drafter's pod.
#   WAIT    seconds to wait for the RayService, and for a new drafter (1200)
#   CALL    seconds that one answer may take (300)
#   POLL    seconds between two looks at the drafters (5)
#   EXACT   no: texts that differ are told, not a failure. For bfloat16, whose rounding may turn near ties (yes)
set -euo pipefail
if [ $# -lt 1 ] || [ $# -gt 2 ]; then
  echo "usage: $0 NAMESPACE [PROMPT]" >&2
  exit 2
fi
namespace="$1"
prompt="${2:-Once upon a time}"
wait_seconds="${WAIT:-1200}"
exact="${EXACT:-yes}"
call_seconds="${CALL:-300}"
if ! [[ "$wait_seconds" =~ ^[1-9][0-9]*$ && "$call_seconds" =~ ^[1-9][0-9]*$ && "$exact" =~ ^(yes|no)$ ]]; then
  echo "WAIT and CALL are whole seconds, EXACT is yes or no" >&2
  exit 2
fi
for program in kubectl outrider; do
  if ! command -v "$program" > /dev/null; then
    echo "$program is not on PATH" >&2
    exit 2
  fi
done
scratch="$(mktemp -d)"
forward=""
different=0

clean() {
  if [ -n "$forward" ]; then kill "$forward" 2> /dev/null || true; fi
  rm -rf "$scratch"
}
trap clean EXIT

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

pods() { # COMPONENT: names of its pods that run and are not on their way out
  # shellcheck disable=SC2016  # a template of kubectl
  kubectl -n "$namespace" get pods --selector "app.kubernetes.io/part-of=outrider,app.kubernetes.io/component=$1" \
    --field-selector status.phase=Running \
    --output 'go-template={{range .items}}{{if not .metadata.deletionTimestamp}}{{.metadata.name}}{{"\n"}}{{end}}{{end}}'
}

ask() { # FILE [OPTION...]: one answer of a fixed seed
  local file="$1"
  shift
  timeout "$call_seconds" outrider generate "$prompt" --text --target "127.0.0.1:$port" --seed 7 --temperature 0.8 \
    --max-tokens 48 "$@" > "$file" || fail "no answer ($file)"
  [ -s "$file" ] || fail "an empty answer ($file)"
}

same() { # FILE WHAT: is it the first answer?
  cmp -s "$scratch/first" "$1" && return
  diff "$scratch/first" "$1" >&2 || true
  [ "$exact" = no ] || fail "$2 is another text than the first"
  echo "note: $2 is another text than the first" >&2
  different=$((different + 1))
}

echo "1/5 waiting for rayservice/outrider"
kubectl -n "$namespace" wait rayservice/outrider --for=condition=Ready --timeout="${wait_seconds}s" \
  || fail "rayservice/outrider is not ready: kubectl -n $namespace describe rayservice outrider"

# To the pod of a gateway: behind the Service a pod of drafters may stand, and one of those goes below.
gateway="$(pods ingress | head -n 1)"
[ -n "$gateway" ] || fail "no pod of the group ingress runs"
kubectl -n "$namespace" port-forward "pod/$gateway" :9000 > "$scratch/forward" 2>&1 &
forward=$!
port=""
for _ in $(seq 60); do
  port="$(sed -n 's/^Forwarding from 127\.0\.0\.1:\([0-9]*\) .*/\1/p' "$scratch/forward" | head -n 1)"
  [ -z "$port" ] || break
  kill -0 "$forward" 2> /dev/null || break
  sleep 1
done
[ -n "$port" ] || fail "no way to pod/$gateway: $(cat "$scratch/forward")"

echo "2/5 one seed, two answers"
ask "$scratch/first"
ask "$scratch/second"
same "$scratch/second" "the second answer"

echo "3/5 the same without drafters"
ask "$scratch/alone" --speculation off
same "$scratch/alone" "the answer without speculation"

drafters="$(pods draft)"
victim="$(head -n 1 <<< "$drafters")"
[ -n "$victim" ] || fail "no pod of the group draft runs"
echo "4/5 without pod/$victim"
kubectl -n "$namespace" delete pod "$victim" --wait=false
ask "$scratch/third"
same "$scratch/third" "the answer after a drafter was killed"

echo "5/5 waiting for a new drafter"
deadline=$((SECONDS + wait_seconds))
while [ -z "$(pods draft | grep -vxF "$drafters" || true)" ]; do
  [ "$SECONDS" -lt "$deadline" ] || fail "no new pod of the group draft after $wait_seconds s"
  sleep "${POLL:-5}"
done
ask "$scratch/fourth"
same "$scratch/fourth" "the answer after recovery"
echo "OK: five answers, $different of them different from the first"
