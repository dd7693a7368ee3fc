#!/bin/bash
TAG=24.05
docker run --gpus '"device=0,1"' --shm-size=16g -e HF_TOKEN -e EPOCHS=3 --name "train-$TAG" \
  -v /data:/data:ro nvcr.io/nvidia/pytorch:$TAG-py3 bash -c 'torchrun --nproc_per_node 2 train.py --lr 1e-4'
docker exec -it train python eval.py --data /data
