#!/bin/bash
mkdir -p logs/{train,eval}
torchrun --nproc_per_node 4 train.py --data data/{train,valid}.json --parts shard-{00..03}.bin --levels {a..c} --out=x{,.bak}
CUDA_VISIBLE_DEVICES=0 python merge.py --inputs out/rank{0..3}.pt --step {10..30..10}
