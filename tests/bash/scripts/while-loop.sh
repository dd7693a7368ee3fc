#!/bin/bash
ROUND=0
while [ $ROUND -lt 2 ]; do
  deepspeed train.py --round $ROUND --iters 100
  ROUND=$((ROUND + 1))
done
python report.py --rounds 2
