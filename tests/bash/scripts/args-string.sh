#!/bin/bash
GPUS_PER_NODE=8
NNODES=2
MASTER_PORT=6000
DISTRIBUTED_ARGS="
    --nproc_per_node $GPUS_PER_NODE \
    --nnodes $NNODES \
    --master_port $MASTER_PORT
"
MODEL_ARGS="--num-layers 24 --hidden-size 1024"
TRAINING_ARGS="--micro-batch-size 4 \
  --lr 1.5e-4 --bf16"
torchrun $DISTRIBUTED_ARGS pretrain_gpt.py \
    $MODEL_ARGS \
    $TRAINING_ARGS \
    --save "out dir"
