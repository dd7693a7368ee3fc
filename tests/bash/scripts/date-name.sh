#!/bin/bash
MODEL=opt
RUN="$MODEL-$(date +%m%d)"
LOG="logs/${RUN}.log"
mkdir -p logs
deepspeed --num_gpus 8 train.py --run_name "$RUN" --model $MODEL --stage 2 2>&1 | tee "$LOG"
