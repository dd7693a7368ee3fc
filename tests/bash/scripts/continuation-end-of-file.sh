#!/bin/bash
# The last line ends in a backslash, and the file ends there.
LR=1e-4
deepspeed --num_gpus 2 train.py --lr $LR \
  --bf16 \