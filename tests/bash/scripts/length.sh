#!/bin/bash
HOSTS=(node0 node1 node2)
GPUS=0,1,2,3
COMMAS=${GPUS//[^,]/}
NPROC=$((${#COMMAS} + 1))
torchrun --nnodes ${#HOSTS[@]} --nproc_per_node $NPROC --rdzv_endpoint ${HOSTS[0]}:29500 train.py --len ${#GPUS}
