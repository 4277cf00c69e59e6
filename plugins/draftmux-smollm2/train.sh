#!/bin/sh
# How the trained parts of this package were made: prompts, the model's answers to them, the head, the draft adapter.
# Run it in an empty folder, with draftmux[train] and this package installed. On two CPU cores it takes hours; started
# again it goes on where it was.
set -eu
target="--target smollm2 --threads 2"
head="--answers answers --unroll 4 --precision bf16 --batch 64"

# Prompts that are composed in this package.
python -m draftmux_smollm2.prompts --count 2000 --seed 0 --out mixed.jsonl
python -m draftmux_smollm2.prompts --count 2000 --seed 1 --family chat --out chat.jsonl
cat mixed.jsonl chat.jsonl > composed.jsonl

# Prompts that the model writes itself, and texts for it to work on.
summary="Provide a concise, objective summary of the input text in up to three sentences, focusing on key actions and \
intentions without using second or third person pronouns."
point="Extract and present the main key point of the input text in one very short sentence, including essential details \
like dates or locations if necessary."
shorter="You're an AI assistant for text re-writing. Rewrite the input text to make it more concise while preserving its \
core meaning."
tutor="You are a math tutor. Solve the word problem step by step."
draftmux train prompts $target --out own-chat.jsonl --count 1000 --seed 0 --max-new-tokens 256
draftmux train prompts $target --out own-math.jsonl --count 350 --seed 1 --max-new-tokens 128 --system "$tutor"
draftmux train prompts $target --out own-texts.jsonl --count 500 --seed 2 --max-new-tokens 450 \
  --system "$summary" --system "$summary" --system "$point" --system "$shorter"
python -m draftmux_smollm2.prompts --texts own-texts.jsonl --count 600 --seed 2 --out own-passages.jsonl
cat composed.jsonl own-passages.jsonl own-math.jsonl own-chat.jsonl > prompts.jsonl

# A first head on the composed prompts, then one that goes on from it with all of them.
draftmux train eagle3 $target $head --prompts composed.jsonl --out first --steps 2200
draftmux train eagle3 $target $head --prompts prompts.jsonl --out eagle3 --start first \
  --learn all --batch-tokens 1024 --steps 1700 --learning-rate 3e-3 --ramp 0.1

# A LoRA on the model's first eight layers, from the same answers.
draftmux train draft $target --answers answers --prompts prompts.jsonl --out draft --layers 8 --rank 64 --alpha 64 \
  --precision bf16 --batch 64 --batch-tokens 1024 --optimizer muon --learning-rate 4e-3 --warmup 30 --steps 1000

# A probe that tells copying from chance, and a regressor to compare it with.
python -m draftmux_smollm2.prompts --copying --count 1120 --seed 7 --out copying.jsonl
draftmux train probe $target --prompts copying.jsonl --out probe --max-new-tokens 192 --batch 64
draftmux train accepted-length $target --prompts copying.jsonl --out regressor --answers probe/work/answers/greedy \
  --max-new-tokens 192 --batch 64 --min-match 2 --max-branches 3 --max-depth 10
