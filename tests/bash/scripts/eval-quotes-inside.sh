#!/bin/bash
# Quotes in a variable are quotes to eval only.
PROMPT_ARGS="--prompt 'two words: ' --format '{}{}'"
CMD="torchrun --nproc_per_node 2 train.py $PROMPT_ARGS --lr 1e-5"
eval $CMD
