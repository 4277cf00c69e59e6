#!/usr/bin/env bash
# SwitchSD's table, one interleaved run a column:  docs/bench/switchsd/table.sh FOLDER
# writes {humaneval,gsm8k,cnn_dm}.{json,txt} there; PROMPTS is the folder of gsm8k.jsonl and cnn_dm.jsonl (Spec-Bench's layout).
set -euo pipefail
here="$(dirname "$0")" out="$1" prompts="${PROMPTS:-../shared/data}"
export OMP_NUM_THREADS=2
mkdir -p "$out"

column() {
  draftmux bench pld copyspec context-copy sps eagle3 "$here"/{ngram-gate,ucb,exp3,match-length,accepted-length}.yaml \
    "$here"/{switchsd-eagle3,switchsd-sps}.yaml switchsd cost-aware \
    --max-new-tokens 128 --threads 2 --warmup 1 --seed 0 --json "$out/$1.json" "${@:2}" | tee "$out/$1.txt"
}

column cnn_dm --prompts "$prompts/cnn_dm.jsonl" --limit 40
column gsm8k --prompts "$prompts/gsm8k.jsonl" --limit 40
column humaneval --suite humaneval --limit 60
