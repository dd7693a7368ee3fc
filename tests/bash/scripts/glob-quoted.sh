#!/bin/bash
PATTERN="data/*.json"
python prepare.py --files "$PATTERN" --glob 'shards/part-?.bin' --regex "layers\.[0-9]+" --escaped \*.pt
