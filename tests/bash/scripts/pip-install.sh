#!/bin/bash
pip install -q deepspeed transformers
git clone https://example.invalid/repo.git || true
export HF_ENDPOINT=https://hf-mirror.com
huggingface-cli download org/model --local-dir model
deepspeed train.py --model model
