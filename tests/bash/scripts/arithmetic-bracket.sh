#!/bin/bash
# The form that bash keeps for old scripts.
N=4
WORLD=$[N*2]
OFFSET=$[$N + 1]
deepspeed --num_gpus $N train.py --world $WORLD --offset $OFFSET
