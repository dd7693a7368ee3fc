#!/bin/bash
# The positional parameters as a list that grows.
set -- --lr 1e-4 --epochs 3
set -- "$@" --name "two words"
deepspeed --num_gpus 2 train.py "$@" --count $# --first $1
set -- a.json "b c.json"
python merge.py "$@" --last "${2}" --all "$*"
