#!/usr/bin/env bash
# All figures of the arbiter lab, into a folder; a training run that was stopped goes on where it was.
#
#     docs/bench/cospec/lab.sh FOLDER [part …]
#
# Parts, in this order: data, warmup, grpo, table, sampled, thresholds, longer, gap, families, ablations-0, ablations-1.
# Where nothing is timed two processes run at once, on a core each. The arbiter that ships is grpo-2; seeds 0 and 1,
# families and ablations are for comparison, and have fewer steps.
set -euo pipefail
cd "$(dirname "$0")/../../.."
out="$1"
shift
[ "$#" -gt 0 ] || set -- data warmup grpo table sampled thresholds longer gap families ablations-0 ablations-1
pair="plugins/draftmux-arbiter-lab/cospec.yaml"

evaluate() { # name of the figures, problems, options
    OMP_NUM_THREADS=2 python docs/bench/cospec/evaluate.py "$pair" "$out/$2.jsonl" --task exact-string --threads 2 \
        --json "$out/$1.json" "${@:3}" | tee "$out/$1.txt"
}

mkdir -p "$out"

beside() { # runs a command in the background, at most two at once
    while [ "$(jobs -rp | wc -l)" -ge 2 ]; do wait -n; done
    "$@" &
}

all() { for job in $(jobs -p); do wait "$job"; done; }

trap 'kill $(jobs -p) 2>/dev/null || true' EXIT

train() { # name, problems, options
    OMP_NUM_THREADS=1 draftmux train arbiter --pipeline "$pair" --problems "$out/$2.jsonl" --task exact-string \
        --out "$out/$1" --threads 1 --max-new-tokens 96 --batch 64 --rate 0.0001 "${@:3}" >>"$out/$1.log" 2>&1
}

second() { # name of the warm-up, name, problems, options: stage 2 from the warm-up's state
    mkdir -p "$out/$2"
    [ -e "$out/$2/work" ] || cp -r "$out/$1/work" "$out/$2/"
    train "$2" "$3" "${@:4}"
}

both() { # name, problems, steps of stage 2, options: a warm-up, and stage 2 from it
    train "warmup-$1" "$2" --steps 0 "${@:4}"
    second "warmup-$1" "grpo-$1" "$2" --steps "$3" "${@:4}"
}

for part in "$@"; do
    case "$part" in
    data)
        write() { python -m draftmux_arbiter_lab --out "$out/$1.jsonl" "${@:2}"; }
        write train --seed 1000000 --count 4000
        write test --seed 2000000 --count 2500 --new --without "$out/train.jsonl"
        for family in digits words units; do
            write "only-$family" --seed 2000001 --count 1250 --family "$family" --new --without "$out/train.jsonl"
        done
        write longer --seed 2000002 --count 1000 --steps 5 5 --new
        write without-words --seed 1000001 --count 3000 --family digits --family units
        write without-digits --seed 1000002 --count 3000 --family words --family units
        write without-units --seed 1000003 --count 3000 --family digits --family words
        ;;
    warmup) for seed in 0 1 2; do beside train "warmup-$seed" train --steps 0 --seed "$seed"; done ;;
    grpo)
        beside second warmup-2 grpo-2 train --steps 100 --seed 2
        for seed in 0 1; do beside second "warmup-$seed" "grpo-$seed" train --steps 50 --seed "$seed"; done
        ;;
    table)
        evaluate table test --validation 500 --arbiter warm-up="$out/warmup-2" --arbiter grpo="$out/grpo-2" \
            --arbiter grpo-0="$out/grpo-0" --arbiter grpo-1="$out/grpo-1"
        ;;
    sampled) evaluate sampled test --validation 500 --limit 1000 --temperature 1 --arbiter grpo="$out/grpo-2" ;;
    thresholds)
        options="$(printf ' --threshold %s' 0.05 0.1 0.3 0.5 0.7 0.9 0.95)"
        evaluate thresholds test --validation 500 --limit 1000 --no-rules --arbiter grpo="$out/grpo-2" $options
        ;;
    longer) # problems of five steps; an arbiter has learned from those of two to four
        evaluate longer longer --validation 0 --no-rules --arbiter warm-up="$out/warmup-2" --arbiter grpo="$out/grpo-2"
        ;;
    families) # the same training without a family, and with all of them
        for name in without-digits without-words without-units; do
            beside both "$name" "$name" 20 --limit 1200 --warmup-steps 300
        done
        beside both with-all train 20 --limit 1200 --warmup-steps 300
        all
        for family in digits words units; do
            evaluate "only-$family" "only-$family" --validation 250 --limit 1000 --no-rules \
                --arbiter others="$out/grpo-without-$family" --arbiter all="$out/grpo-with-all"
        done
        ;;
    ablations-0 | ablations-1) # from a short warm-up, which leaves stage 2 something to do; the last policy of each
        seed="${part#ablations-}"
        mkdir -p "$out/$part"
        short() { # name of the warm-up, options
            mkdir -p "$out/$part/$1/work"
            [ -e "$out/$part/$1/work/mismatches.jsonl" ] ||
                cp "$out/warmup-$seed/work/mismatches.jsonl" "$out/$part/$1/work/"
            train "$part/$1" train --steps 0 --seed "$seed" --warmup-steps 40 "${@:2}"
        }
        again() { # name of the warm-up, name, options: the same but for one thing
            beside second "$part/$1" "$part/$2" train --steps 50 --every 50 --seed "$seed" --warmup-steps 40 "${@:3}"
        }
        short short
        short short-no-features --features false
        again short the-same
        again short no-risk --risk 0
        again short no-refusal-penalty --refusal 0
        again short literal-reward --right 0
        again short centred --advantage centred
        again short credit-for-all --credit all
        again short-no-features no-features --features false
        beside train "$part/no-warmup" train --steps 50 --every 50 --seed "$seed" --warmup-steps 0
        all
        arbiters=""
        for name in short short-no-features the-same no-risk no-refusal-penalty literal-reward centred credit-for-all \
            no-features no-warmup; do
            arbiters+=" --arbiter $name=$out/$part/$name"
        done
        evaluate "$part" test --validation 500 --no-rules --threshold 0.5 --against "the-same at 0.5" $arbiters
        ;;
    gap)
        python docs/bench/cospec/complementarity.py "$pair" "$out/test.jsonl" --task exact-string --skip 500 --limit 1000 \
            --threads 2 | tee "$out/gap.txt"
        ;;
    *)
        echo "no part '$part'" >&2
        exit 1
        ;;
    esac
    all
done
