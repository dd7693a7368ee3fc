#!/bin/bash
GPUS=8
train() {
  local GPUS=2 LR=${1:-1e-4}
  torchrun --nproc_per_node $GPUS train.py --lr $LR
}
train
train 5e-5
torchrun --nproc_per_node $GPUS final.py
