#!/bin/bash
NP=16
HOSTFILE=hosts.txt
mpirun -np $NP --hostfile $HOSTFILE -x NCCL_DEBUG=INFO -x PATH -bind-to none python train.py --backend mpi
mpiexec -n 4 python train.py --small
