#!/bin/bash
timeout 3600 python train.py --a 1
nice -n 10 python prep.py --b 2
numactl --cpunodebind=0 --membind=0 torchrun --nproc_per_node 4 train.py --c 3
taskset -c 0-15 python train.py --d 4
sudo -E python setup_env.py --e 5
stdbuf -oL python train.py --f 6 | tee log.txt
exec deepspeed --num_gpus 2 train.py --g 7
