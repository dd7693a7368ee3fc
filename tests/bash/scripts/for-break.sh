#!/bin/bash
for TRY in 1 2 3; do
  python train.py --try $TRY --resume auto && break
done
python after.py --done
