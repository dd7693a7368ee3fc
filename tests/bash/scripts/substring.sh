#!/bin/bash
DATE=20240131
SHA=0123456789abcdef
START=4
torchrun --nproc_per_node 8 train.py --year ${DATE:0:4} --month "${DATE:$START:2}" --sha ${SHA:0:7} --tail ${SHA: -4} \
  --cut ${SHA:2:-10} --from ${DATE:START}
