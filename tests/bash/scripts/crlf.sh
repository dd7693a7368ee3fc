#!/bin/bash
# written on another system
GPUS=4
torchrun --nproc_per_node $GPUS train.py --lr 1e-4 --end here
