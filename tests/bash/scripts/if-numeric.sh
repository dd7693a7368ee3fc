#!/bin/bash
# run:
# run: 1
# run: 16
GPUS=${1:-8}
if [ "$GPUS" -gt 8 ]; then
  NNODES=$((GPUS / 8))
  PER_NODE=8
elif (( GPUS == 1 )); then
  NNODES=1
  PER_NODE=1
else
  NNODES=1
  PER_NODE=$GPUS
fi
torchrun --nnodes $NNODES --nproc_per_node $PER_NODE train.py --total $GPUS
