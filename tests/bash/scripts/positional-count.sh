#!/bin/bash
# run: 4
# run:
# run: 2 extra words
if [ $# -lt 1 ]; then
    echo "usage: $0 GPUS" >&2
    exit 1
fi
GPUS=$1
accelerate launch --num_processes "$GPUS" --mixed_precision bf16 train.py --config config.yaml
