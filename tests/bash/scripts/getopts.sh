#!/bin/bash
# run: -g 2 -m opt
# run:
GPUS=1
MODEL=bert
while getopts "g:m:" option; do
  case $option in
    g) GPUS=$OPTARG ;;
    m) MODEL=$OPTARG ;;
  esac
done
shift $((OPTIND - 1))
torchrun --nproc_per_node "$GPUS" train.py --model "$MODEL" --fp16
