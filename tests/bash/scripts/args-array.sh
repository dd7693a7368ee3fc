#!/usr/bin/env bash
ARGS=(
    --model_name_or_path meta-llama/Llama-2-7b-hf
    --output_dir "out dir/run 1"
    # a comment in the list
    --bf16 True
    --learning_rate=2e-5
)
ARGS+=(--deepspeed configs/zero3.json)
if_debug=()
deepspeed --num_gpus 8 train.py "${ARGS[@]}" "${if_debug[@]}" --count ${#ARGS[@]}
