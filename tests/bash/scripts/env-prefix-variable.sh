#!/bin/bash
# The prefix may use variables and quotes.
DEVICES=0,1
WORKERS=4
MASTER_PORT=$((29500 + 7)) OMP_NUM_THREADS=$WORKERS CUDA_VISIBLE_DEVICES="$DEVICES" \
  WANDB_NAME='opt lora' torchrun --nproc_per_node 2 train.py --config configs/lora.yaml
CUDA_VISIBLE_DEVICES="" python preprocess.py --workers $WORKERS
