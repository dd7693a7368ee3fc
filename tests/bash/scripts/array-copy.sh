#!/bin/bash
BASE=(--bf16 --seed 1)
FULL=("${BASE[@]}" --lr 1e-4 "--name=a b")
FULL=("${FULL[@]}" --last)
torchrun --nproc_per_node 2 train.py "${FULL[@]}" ${BASE[*]}
