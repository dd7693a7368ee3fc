#!/bin/bash
export TOKENIZERS_PARALLELISM=false
export WANDB_MODE=offline HF_HUB_OFFLINE=1
# Not for the children any more.
export -n WANDB_MODE
deepspeed --num_gpus 4 train.py --deepspeed ds.json
unset HF_HUB_OFFLINE
accelerate launch --num_processes 4 eval.py --split test
