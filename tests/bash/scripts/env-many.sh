#!/bin/bash
NNODES=1 \
NPROC_PER_NODE=2 \
MASTER_PORT=29501 \
CUDA_VISIBLE_DEVICES=0,1 \
MAX_PIXELS=1003520 \
swift rlhf --rlhf_type dpo --model Qwen/Qwen2.5-VL-7B-Instruct --learning_rate 1e-4 --output_dir output
