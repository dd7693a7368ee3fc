#!/bin/bash
set -euxo pipefail
shopt -s nullglob
IFS=$'\n\t'
MODEL="opt 1.3b"
torchrun --nproc_per_node 2 train.py --model "$MODEL" --steps 10
