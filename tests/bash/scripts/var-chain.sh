#!/usr/bin/env bash
set -euo pipefail
# Values that are made of values.
BASE=/mnt/models
FAMILY=llama-3
SIZE=8b
MODEL_PATH=$BASE/$FAMILY/$FAMILY-$SIZE-instruct
RUN_NAME="${FAMILY}_${SIZE}_sft"
LOG_DIR="logs/${RUN_NAME}"
GPUS=4
PORT=29501

mkdir -p "$LOG_DIR"
torchrun --nproc_per_node=$GPUS --master_port=$PORT finetune.py \
  --model "$MODEL_PATH" --run-name="$RUN_NAME" --logging_dir "$LOG_DIR/tb" \
  --report_to tensorboard
