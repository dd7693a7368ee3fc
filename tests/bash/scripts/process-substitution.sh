#!/bin/bash
mkdir -p logs
exec > >(tee logs/out.log) 2>&1
deepspeed train.py --deepspeed ds.json 2> >(grep -v warning >&2)
python compare.py --a 1
