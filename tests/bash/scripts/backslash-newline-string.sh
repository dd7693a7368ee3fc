#!/bin/bash
options=" \
    --model-parallel-size 2 \
    --num-layers 24 \
    --checkpoint-activations \
"
run_cmd="deepspeed --num_nodes 1 --num_gpus 8 pretrain.py $@ ${options}"
echo ${run_cmd}
eval ${run_cmd}
set +x
