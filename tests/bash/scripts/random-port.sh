#!/bin/bash
PORT=$((RANDOM % 1000 + 29000))
SEED=$RANDOM
torchrun --nproc_per_node 2 --master_port $PORT train.py --seed $SEED --model opt --epochs 2 --lr 1e-4 --bf16
