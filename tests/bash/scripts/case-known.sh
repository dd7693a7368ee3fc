#!/bin/bash
MODEL=llama-13b
case $MODEL in
  *7b) BATCH=8; TP=1 ;;
  *13b) BATCH=4; TP=2 ;;
  *) BATCH=1; TP=8 ;;
esac
torchrun --nproc_per_node 8 pretrain.py --model $MODEL --micro-batch-size $BATCH --tensor-parallel $TP
