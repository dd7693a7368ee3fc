#!/bin/bash
: "${GPUS:=4}"
: ${BATCH:=16}
: "${MODEL:=bert-base-uncased}"
deepspeed --num_gpus "$GPUS" run_glue.py --model_name_or_path "$MODEL" --per_device_train_batch_size $BATCH
