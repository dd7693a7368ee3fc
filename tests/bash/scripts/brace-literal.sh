#!/bin/bash
# These braces stay as they are.
N=4
python train.py --format {} --cfg {a} --range {1..$N} --dict "{a,b}" '{c,d}' --placeholder {model_name}/{step}
