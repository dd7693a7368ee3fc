#!/bin/bash
# run: x z
# run: w y
# run: x y
if [ "$1" = x ]; then
  if [ "$2" = y ]; then
    echo "not both" >&2
    exit 1
  fi
fi
if [ "$1" = x ]; then A=1; else A=0; fi
if [ "$2" = y ]; then B=1; else B=0; fi
torchrun train.py --a $A --b $B
