#!/bin/bash
HOSTS="node1 node2"
PORT=29555
ssh node1 "cd /workspace && torchrun --nproc_per_node 8 --nnodes 2 --node_rank 0 --master_port $PORT train.py"
ssh -p 2222 -o StrictHostKeyChecking=no user@node2 "torchrun --nproc_per_node 8 --nnodes 2 --node_rank 1 --master_port $PORT train.py"
for h in $HOSTS; do ssh $h nvidia-smi; done
