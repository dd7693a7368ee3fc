#!/bin/bash
CUDA_VISIBLE_DEVICES=0,2,4,6
export CUDA_VISIBLE_DEVICES
N=$(echo $CUDA_VISIBLE_DEVICES | awk -F',' '{print NF}')
M=$(awk -F, '{print NF}' <<< "$CUDA_VISIBLE_DEVICES")
K=$(echo "$CUDA_VISIBLE_DEVICES" | grep -o "," | wc -l)
deepspeed --num_gpus $N train.py --m $M --k $((K + 1))
