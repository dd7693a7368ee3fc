#!/bin/bash
# run:
# run: lora
# run: full
if [ "$1" == "lora" ]; then
    LR=1e-4
    EXTRA="--use_lora --rank 8"
else
    LR=1e-5
    EXTRA=""
fi
deepspeed --num_gpus 8 train.py --lr $LR $EXTRA --epochs 3
