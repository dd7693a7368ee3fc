#!/bin/bash
GPU_IDS=(0 2 4 6)
MODELS=("opt-125m" "opt-350m" "opt-1.3b")
COUNT=${#GPU_IDS[@]}
CUDA_VISIBLE_DEVICES=${GPU_IDS[0]},${GPU_IDS[1]} deepspeed train.py --model ${MODELS[2]} --last ${MODELS[-1]} --all "${MODELS[*]}"
I=1
torchrun --nproc_per_node $COUNT train.py --model "${MODELS[$I]}" --next ${MODELS[I+1]} --part "${MODELS[@]:1:2}"
