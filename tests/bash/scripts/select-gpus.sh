#!/bin/bash
GPU_LIST="${CUDA_VISIBLE_DEVICES:-0,1}"
IFS=',' read -ra GPULIST <<< "$GPU_LIST"
CHUNKS=${#GPULIST[@]}
for IDX in $(seq 0 $((CHUNKS-1))); do
    CUDA_VISIBLE_DEVICES=${GPULIST[$IDX]} python -m eval.model_vqa --num-chunks $CHUNKS --chunk-idx $IDX --conv-mode v1 &
done
wait
