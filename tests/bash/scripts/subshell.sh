#!/bin/bash
LR=1e-4
(
  LR=1e-5
  export NCCL_DEBUG=INFO
  cd /tmp && torchrun --nproc_per_node 2 inner.py --lr $LR
)
torchrun --nproc_per_node 2 outer.py --lr $LR
{ BATCH=4; python grouped.py --batch $BATCH; }
python after.py --batch $BATCH
