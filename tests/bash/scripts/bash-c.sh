#!/bin/bash
export LR=1e-4
BATCH=8
bash -c 'python a.py --lr $LR --batch "$BATCH" --end'
bash -c "python b.py --lr $LR --batch $BATCH"
bash -lc "cd . && deepspeed c.py --deepspeed ds.json"
sh -c 'exec torchrun --nproc_per_node 2 d.py'
