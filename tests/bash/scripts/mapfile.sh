#!/bin/bash
mapfile -t HOSTS <<< "node0
node1"
readarray -t ARGS < <(printf '%s\n' --lr 1e-4)
deepspeed --num_gpus 4 train.py --hosts ${#HOSTS[@]} --head "${HOSTS[0]}" --fixed 1
