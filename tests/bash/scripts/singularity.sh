#!/bin/bash
IMAGE=pytorch.sif
export NCCL_DEBUG=WARN
singularity exec --nv --bind /scratch:/scratch $IMAGE torchrun --nproc_per_node 4 train.py --data /scratch/d
apptainer run --nv -B /data $IMAGE python eval.py --split test
