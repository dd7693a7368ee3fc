#!/bin/bash
LR_opt=1e-4
LR_llama=2e-5
MODEL=llama
VARIABLE=LR_$MODEL
deepspeed --num_gpus 8 train.py --model $MODEL --lr ${!VARIABLE} --which "$VARIABLE"
