#!/bin/bash
STRING="--lr 1e-5 --wd 0.1"
ARGS=($STRING)
HOSTS=($(echo "a,b,c" | tr ',' ' '))
deepspeed --num_gpus 1 train.py "${ARGS[@]}" --hosts ${#HOSTS[@]} --head ${HOSTS[0]} --value ${ARGS[1]}
