#!/bin/bash
NODES=(node0 node1)
PORT=29500
for i in "${!NODES[@]}"; do
  ssh ${NODES[$i]} "torchrun --nnodes 2 --node_rank $i --master_addr ${NODES[0]} --master_port $PORT --nproc_per_node 8 train.py" &
done
wait
