#!/bin/bash
declare -A LR=([opt]=1e-4 [llama]=2e-5)
declare -A BATCH
BATCH[opt]=16
BATCH[llama]=4
MODEL=llama
deepspeed --num_gpus 4 train.py --model $MODEL --lr ${LR[$MODEL]} --batch "${BATCH[$MODEL]}" --other ${LR[opt]}
