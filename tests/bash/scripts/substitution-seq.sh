#!/bin/bash
# A list of devices that is computed.
N=4
DEVICES=$(seq -s, 0 $((N - 1)))
export CUDA_VISIBLE_DEVICES=$DEVICES
deepspeed --num_gpus=$N train.py --devices $DEVICES
for i in $(seq 1 2); do
  echo "round $i"
done
