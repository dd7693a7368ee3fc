#!/bin/bash
SEP=$'\t'
TEMPLATE=$'### User:\n{prompt}\n### Assistant:\n'
torchrun --nproc_per_node 2 sft.py --sep "$SEP" --template "$TEMPLATE" --apostrophe $'it\'s' --end $'\\n'
