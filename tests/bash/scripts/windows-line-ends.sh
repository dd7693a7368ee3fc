#!/bin/bash
GPUS=8
export LR=2e-5
torchrun --nproc_per_node $GPUS train.py \
  --lr $LR \
  --bf16
torchrun --nproc_per_node 4 train.py --lr "$LR" # once more
deepspeed train.py; torchrun a.py
