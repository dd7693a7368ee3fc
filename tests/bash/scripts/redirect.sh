#!/bin/bash
mkdir -p logs
LOG=logs/train.log
deepspeed --num_gpus 8 train.py --deepspeed ds.json > $LOG 2>&1
torchrun --nproc_per_node 4 a.py --x 1 2>&1 | tee -a logs/a.log
torchrun --nproc_per_node 4 b.py --x 2 &> logs/b.log
python c.py --x 3 >> "$LOG" 2> logs/err.log < /dev/null
python d.py --x 4 2>&1 | tee logs/d.log | grep loss
>logs/e.log python e.py --x 5
