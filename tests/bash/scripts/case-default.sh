#!/bin/bash
MODE=${MODE:-train}
case "$MODE" in
  train) SCRIPT=train.py; ARGS=(--epochs 3) ;;
  eval) SCRIPT=eval.py; ARGS=(--split test) ;;
esac
accelerate launch --num_processes 8 $SCRIPT "${ARGS[@]}"
