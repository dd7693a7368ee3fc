#!/bin/bash
GPUS_PER_NODE=8
NNODES=1
TP=2
PP=2
DP=$((GPUS_PER_NODE * NNODES / (TP * PP)))
DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes $NNODES
)
PARALLEL="--tensor-model-parallel-size $TP --pipeline-model-parallel-size $PP"
torchrun "${DISTRIBUTED_ARGS[@]}" pretrain_gpt.py $PARALLEL \
    --micro-batch-size 1 --global-batch-size $((DP * 4)) ${PROFILE:+--profile} --use-flash-attn
