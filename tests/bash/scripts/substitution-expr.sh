#!/bin/bash
# Old scripts compute with expr.
GPUS_PER_NODE=8
NNODES=4
WORLD_SIZE=$(expr $GPUS_PER_NODE \* $NNODES)
GLOBAL_BATCH=`expr $WORLD_SIZE \* 2`
GAS=$(expr 128 / $WORLD_SIZE)
LAST=$(expr $NNODES - 1)
deepspeed --num_gpus $GPUS_PER_NODE --num_nodes 1 pretrain.py --global-batch-size $GLOBAL_BATCH \
    --gradient-accumulation-steps $GAS --last-node $LAST --world $WORLD_SIZE
