#!/bin/bash
MODEL=opt
CMD="deepspeed --num_gpus 4 train.py --model $MODEL --name 'two words'"
echo $CMD
eval $CMD
run="torchrun --nproc_per_node 2 \
   eval.py --model $MODEL"
eval "$run"
