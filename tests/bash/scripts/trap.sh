#!/bin/bash
cleanup() { python cleanup.py --all; }
trap cleanup EXIT
TMP=$(mktemp -d)
torchrun --nproc_per_node 2 train.py --steps 5
