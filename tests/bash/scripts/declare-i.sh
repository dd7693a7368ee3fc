#!/bin/bash
declare -i GPUS=2*4
declare -i STEPS
STEPS="100 * 3"
declare -r NAME=fixed
declare -a LIST=(a b)
torchrun --nproc_per_node $GPUS train.py --steps $STEPS --name $NAME --list "${LIST[@]}"
