#!/bin/bash
GPUS=0:1:2
OLD=$IFS
IFS=:
set -- $GPUS
IFS=$OLD
python train.py --fixed 1 --name "a b"
