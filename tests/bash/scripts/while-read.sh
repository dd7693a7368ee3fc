#!/bin/bash
while read -r model batch; do
  python train.py --model $model --batch $batch --fixed 1
done <<LIST
opt 8
bert 16
LIST
while IFS=, read -r a b; do python other.py $a-$b --end; done <<< "x,y"
