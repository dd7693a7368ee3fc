#!/bin/bash
torchrun \
  --nnodes=1 \
    --nproc_per_node=8 \
  train.py \
	--tab indented \
  --split-\
word yes \
  --quoted "a \
b" \
  --last
