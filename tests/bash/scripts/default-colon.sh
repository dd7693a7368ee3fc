#!/bin/bash
NNODES=${NNODES:-1}
NODE_RANK=${NODE_RANK:-0}
MASTER_ADDR=${MASTER_ADDR:-127.0.0.1}
MASTER_PORT=${MASTER_PORT:-"29500"}
NPROC_PER_NODE=${NPROC_PER_NODE:-8}
torchrun --nnodes $NNODES --node_rank $NODE_RANK --master_addr $MASTER_ADDR --master_port $MASTER_PORT \
    --nproc_per_node $NPROC_PER_NODE train.py --output ${OUTPUT:-out/default} --name "${RUN_NAME:-base run}"
