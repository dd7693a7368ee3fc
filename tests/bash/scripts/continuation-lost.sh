#!/bin/bash
torchrun --nproc_per_node 2 train.py \
  --lr 1e-4
  --epochs 3
python after.py
