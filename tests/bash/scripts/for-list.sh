#!/bin/bash
for LR in 1e-5 2e-5 5e-5; do
  for SEED in 1 2; do
    deepspeed --num_gpus 4 train.py --lr $LR --seed $SEED --out out/$LR-$SEED --deepspeed ds.json
  done
done
