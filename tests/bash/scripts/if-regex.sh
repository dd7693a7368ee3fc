#!/bin/bash
MODEL=Qwen2-7B
if [[ $MODEL =~ ^Qwen ]]; then TEMPLATE=qwen; else TEMPLATE=default; fi
if [[ $MODEL == *7B* && $TEMPLATE != llama ]]; then BATCH=4; else BATCH=1; fi
swift sft --model $MODEL --template $TEMPLATE --per_device_train_batch_size $BATCH
