#!/bin/bash
GPUS="0,1,2,3"
IFS=',' read -ra IDS <<< "$GPUS"
NGPU=${#IDS[@]}
read -r HOST PORT <<< "10.0.0.1 29500"
torchrun --nproc_per_node $NGPU --master_addr $HOST --master_port $PORT train.py --first ${IDS[0]}
