#!/bin/bash
CKPT=checkpoints/last
RESUME=""
if [ -d "$CKPT" ]; then
  RESUME="--resume $CKPT"
fi
torchrun --nproc_per_node 8 train.py --data data.json $RESUME --amp
