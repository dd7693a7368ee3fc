#!/bin/bash
OUT=out
python train.py --cache=~/cache --quoted "~/data" --colon a:~/b --output $OUT
