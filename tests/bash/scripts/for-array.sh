#!/bin/bash
OPTS=("--lr 1e-4 --wd 0" "--lr 1e-5 --wd 0.1")
for o in "${OPTS[@]}"; do
  torchrun --nproc_per_node 2 train.py $o --fixed 1
done
