#!/bin/bash
source "$(dirname "$0")/lib/common.env"
. ./lib/cluster.env
deepspeed --num_gpus $GPUS_PER_NODE --master_port $MASTER_PORT train.py --model $MODEL_NAME --lr $LR
