#!/bin/bash
NODES=(worker-0 worker-1)
NODES[2]=worker-2
NODES[0]=master
EXTRA=([1]=b [0]=a)
python launch.py --hosts "${NODES[@]}" --extra "${EXTRA[@]}" --n ${#NODES[@]} --indices "${!NODES[@]}"
