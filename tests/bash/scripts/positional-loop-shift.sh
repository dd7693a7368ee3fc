#!/bin/bash
# run: --gpus 4 --model opt
# run: --model bert
GPUS=8
while [ $# -gt 0 ]; do
  case "$1" in
    --gpus) GPUS=$2; shift 2 ;;
    --model) MODEL=$2; shift 2 ;;
    *) shift ;;
  esac
done
torchrun --nproc_per_node $GPUS train.py --model $MODEL --bf16
