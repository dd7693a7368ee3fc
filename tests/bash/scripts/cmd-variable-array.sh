#!/bin/bash
LAUNCH="accelerate launch --num_processes 2"
ARGS="--lr 1e-4"
$LAUNCH train.py $ARGS
MODULE="-m pkg.train"
python $MODULE $ARGS --flag
