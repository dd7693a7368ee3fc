#!/bin/bash
# Variables of every kind of name in one command.
MODEL=facebook/opt-1.3b
DATA_PATH=data/pile/train.jsonl
output_dir=checkpoints/opt-run1
LR=2e-5
_seed=42

mkdir -p $output_dir
deepspeed --num_gpus 8 train.py \
    --model_name_or_path $MODEL \
    --data_path ${DATA_PATH} \
    --output_dir "$output_dir" \
    --learning_rate $LR \
    --seed ${_seed} \
    --deepspeed configs/zero2.json
