#!/bin/bash
set -o pipefail
mkdir -p logs
torchrun --nproc_per_node 8 train.py --epochs 1 2>&1 | tee logs/train.log | grep -i loss || true
deepspeed eval.py --ckpt out |& tee logs/eval.log
yes | python confirm.py --ask | head -n 1
