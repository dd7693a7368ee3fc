#!/bin/bash
COUNT=3
until [ $COUNT -eq 0 ]; do
  COUNT=$((COUNT - 1))
done
torchrun --nproc_per_node 2 train.py --count $COUNT --batch 4
