#!/bin/bash
# A comment ends the command; the rest is a command of its own.
deepspeed train.py \
  --deepspeed ds.json \
  --lr 1e-4
# --warmup 100 \
#  --bf16
python next.py --ok # trailing comment --not-an-argument
