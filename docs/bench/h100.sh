#!/usr/bin/env bash
# All checks of the h100 backend on a GPU machine, in one run of at most eight minutes; a table comes last.
#
#     bash docs/bench/h100.sh [python]
#
# `python` must have torch for CUDA, triton, transformers and draftmux's other dependencies. Nothing is fetched. SmolLM2's step is
# timed too if its file is in the cache folder. OUT (a folder, if set) gets the table and the log.
set -uo pipefail
cd "$(dirname "$0")/../.."
python="${1:-python}"
out="${OUT:-$(mktemp -d)}"
export PYTHONPATH="docs/bench${PYTHONPATH:+:$PYTHONPATH}" DRAFTMUX_COST_CACHE=off TOKENIZERS_PARALLELISM=false

nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader || exit 1
timeout 120 "$python" -m pytest -q -n 0 -p no:cacheprovider tests/backends/test_tree_attention.py tests/backends/test_h100.py 2>&1 | tail -n 15
timeout 360 "$python" docs/bench/h100.py --out "$out/h100.json" 2>&1 | tee "$out/h100.log"
