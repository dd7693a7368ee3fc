#!/bin/bash
MODEL=opt
source ./not_here.env 2>/dev/null
torchrun --nproc_per_node 2 train.py --fixed yes
