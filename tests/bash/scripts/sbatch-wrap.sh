#!/bin/bash
CONFIG=configs/a.yaml
sbatch --nodes=1 --gpus-per-node=4 --wrap "torchrun --nproc_per_node 4 train.py --config $CONFIG"
sbatch -J eval --wrap='python eval.py --split dev'
