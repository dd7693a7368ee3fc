#!/bin/bash
PORT=29500
torchrun --master_port $PORT --nproc_per_node 2 a.py --stage one
PORT=$((PORT + 1))
torchrun --master_port $PORT --nproc_per_node 2 b.py --stage two
((PORT++))
torchrun --master_port $PORT --nproc_per_node 2 c.py --stage three
((PORT += 10))
torchrun --master_port $PORT --nproc_per_node 2 d.py --stage four
