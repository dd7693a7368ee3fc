#!/bin/bash
# run: small
# run: large
# run:
case "$1" in
  small)
    LAYERS=12
    HIDDEN=768
    ;;
  large|xl)
    LAYERS=24
    HIDDEN=1024
    ;;
  *)
    LAYERS=6
    HIDDEN=512
    ;;
esac
deepspeed pretrain.py --num-layers $LAYERS --hidden-size $HIDDEN --fp16
