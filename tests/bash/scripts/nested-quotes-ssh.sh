#!/bin/bash
DIR=/workspace
ssh node0 'cd /workspace; export NCCL_DEBUG=INFO; python a.py --one "quoted word"'
ssh node1 "cd $DIR && nohup python b.py --two \"escaped words\" > /dev/null 2>&1"
