#!/bin/bash
GPUS_PER_NODE=8
NNODES=4
WORLD_SIZE=$((GPUS_PER_NODE*NNODES))
MICRO_BATCH=2
GLOBAL_BATCH=512
GAS=$((GLOBAL_BATCH / (WORLD_SIZE * MICRO_BATCH)))
torchrun --nproc_per_node $GPUS_PER_NODE --nnodes 1 pretrain.py --global-batch-size $GLOBAL_BATCH \
  --micro-batch-size $MICRO_BATCH --gradient-accumulation-steps $GAS --world-size $(($GPUS_PER_NODE*$NNODES)) \
  --warmup $(( GLOBAL_BATCH * 10 )) --rest $((GLOBAL_BATCH%7))
