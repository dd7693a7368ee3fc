#!/bin/bash
# What a program prints is not known; what stands beside it is.
TIMESTAMP=$(date +%Y%m%d_%H%M%S)
NUM_GPUS=$(nvidia-smi -L | wc -l)
HOST=`hostname`
EPOCHS=3
torchrun --nproc_per_node "$NUM_GPUS" train.py --epochs $EPOCHS --output_dir "runs/$TIMESTAMP" --tag "$HOST"
