#!/bin/bash
# The platform sets these; here nobody does.
torchrun --nnodes=$WORLD_SIZE --node_rank=$RANK --master_addr=$MASTER_ADDR --master_port=29500 \
  --nproc_per_node=8 train.py --version "$MODEL_VERSION" --lr 3e-4
