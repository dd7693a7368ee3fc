#!/bin/bash
PROMPT="You are a helpful assistant.
Answer in one line."
python infer.py --prompt "$PROMPT" --system 'first
second' --words "one \
two" --max_new_tokens 64
