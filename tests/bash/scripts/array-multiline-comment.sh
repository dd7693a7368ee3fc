#!/bin/bash
MODEL_ARGS=(
    --num-layers 24          # small
    --hidden-size 1024
    --norm-epsilon 1e-5      # as in the paper
)
DATA_ARGS=(
    --data-path "1.0 data/a 2.0 data/b"
    --split 949,50,1
)
torchrun --nproc_per_node 8 pretrain_gpt.py "${MODEL_ARGS[@]}" "${DATA_ARGS[@]}" --bf16
