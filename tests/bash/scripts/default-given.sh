#!/bin/bash
# run:
# run: GPUS=2 LR=1e-6
GPUS=4
LR=5e-5
BATCH=${BATCH:-32}
torchrun --nproc_per_node ${GPUS:-8} train.py --lr ${LR:-1e-3} --batch_size ${BATCH}
