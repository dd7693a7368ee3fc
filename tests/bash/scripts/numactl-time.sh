#!/bin/bash
time python bench.py --steps 3
/usr/bin/time -v python bench.py --steps 4
nohup nice -n 5 python bench.py --steps 5 > bench.log 2>&1
timeout --signal=KILL 60 torchrun --nproc_per_node 2 bench.py --steps 6
command python bench.py --steps 7
setsid python bench.py --steps 8
