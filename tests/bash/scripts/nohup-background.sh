#!/bin/bash
mkdir -p logs
export CUDA_VISIBLE_DEVICES=0,1
nohup deepspeed --master_port 29502 train.py --deepspeed ds.json > logs/nohup.out 2>&1 &
CUDA_VISIBLE_DEVICES=2 nohup python -u eval.py --watch ckpt > logs/eval.out 2>&1 &
PID=$!
wait
time torchrun --standalone --nproc_per_node=2 bench.py --steps 10
