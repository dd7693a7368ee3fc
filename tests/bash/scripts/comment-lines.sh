#!/bin/bash
# deepspeed --num_gpus 1 old.py --not run
: <<'SKIP'
torchrun --nproc_per_node 9 skipped.py
SKIP
deepspeed --num_gpus 2 new.py --hash "#not a comment" --url http://x/y#z # comment
