#!/bin/bash -p
# Writes down how it was started; a program that runs another one then runs it. Every other one does nothing.
PATH=$DSLINT_STUBS:$DSLINT_TOOLS
case $0 in
  */.record) name=$1; shift ;;
  "$DSLINT_STUBS"/*) name=${0##*/} ;;
  *) name=$0 ;;
esac
id=$EPOCHREALTIME.$BASHPID
{
  printf '%s\0' "$DSLINT_AT" "$DSLINT_INSIDE" "$PWD" "$#" "$name" "$@"
  "$DSLINT_TOOLS/env" -0
} > "$DSLINT_RECORDS/$id"
export DSLINT_INSIDE=$id

is_program() {
  case ${1##*/} in
    python|python[0-9]*|torchrun|deepspeed|accelerate|srun|mpirun|mpiexec|xtuner|swift|llamafactory-cli|axolotl|bash|sh|zsh) ;;
    env|nohup|time|timeout|numactl|taskset|nice|ionice|stdbuf|setsid|unbuffer|sudo|docker|singularity|apptainer|megatron) ;;
    colossalai|composer|ray|lightning|fabric|torchx) ;;
    *) [[ $1 == */* && -f $1 && -x $1 ]] ;;
  esac
}
run_first_program() {
  while (($#)); do
    is_program "$1" && exec "$@"
    shift
  done
  exit 0
}
# A machine of its own: nothing of this environment gets there but what the options say.
elsewhere=(PATH="$PATH" HOME="$HOME" BASH_ENV="$BASH_ENV" DSLINT_STUBS="$DSLINT_STUBS" DSLINT_TOOLS="$DSLINT_TOOLS"
  DSLINT_RECORDS="$DSLINT_RECORDS" DSLINT_INSIDE="$id" DSLINT_AT="$DSLINT_AT")

case ${name##*/} in
  nohup|setsid|unbuffer|catchsegv)
    exec "$@" ;;
  env)
    exec "$DSLINT_TOOLS/env" "$@" ;;
  mpirun|mpiexec)
    while (($#)); do
      case $1 in
        -x|-env|-genv) [[ $2 == *=* ]] && export "$2"; [[ $1 != -x && $2 != *=* ]] && export "$2=$3" && shift 2 ;;
      esac
      is_program "$1" && exec "$@"
      shift
    done ;;
  srun|salloc|time|timeout|nice|ionice|stdbuf|numactl|taskset|sudo|conda|mamba|uv|poetry|nsys|kubectl|xvfb-run|singularity|apptainer|enroot)
    run_first_program "$@" ;;
  docker|podman|nvidia-docker)
    [[ $1 == run || $1 == exec ]] || exit 0
    shift
    while (($#)); do
      case $1 in
        -e|--env) [[ $2 == *=* ]] && elsewhere+=("$2"); [[ $2 != *=* && -v $2 ]] && elsewhere+=("$2=${!2}"); shift ;;
        --env=*=*) elsewhere+=("${1#--env=}") ;;
        *) is_program "$1" && exec "$DSLINT_TOOLS/env" -i "${elsewhere[@]}" "$@" ;;
      esac
      shift
    done ;;
  ssh)
    while [[ $1 == -* ]]; do
      case $1 in -[pilofFJLRDbceEImOQSWwB]) shift ;; esac
      shift
    done
    shift
    (($#)) && cd "$HOME" && exec "$DSLINT_TOOLS/env" -i "${elsewhere[@]}" bash -c "$*" ;;
  sbatch)
    batch=
    while (($#)); do
      case $1 in
        --wrap) exec bash -c "$2" ;;
        --wrap=*) exec bash -c "${1#--wrap=}" ;;
        --nodes=*) export SLURM_NNODES=${1#*=} SLURM_JOB_NUM_NODES=${1#*=} ;;
        --gpus-per-node=*) export SLURM_GPUS_PER_NODE=${1#*=} SLURM_GPUS_ON_NODE=${1#*=} ;;
        --ntasks-per-node=*) export SLURM_NTASKS_PER_NODE=${1#*=} ;;
        -*) ;;
        *) [[ -f $1 ]] && batch=$1 && break ;;
      esac
      shift
    done
    # The job script on standard input; one in a file is read with that file.
    [[ -z $batch ]] && exec bash ;;
  nvidia-smi)
    for number in 0 1 2 3 4 5 6 7; do echo "GPU $number: NVIDIA H100 (UUID: GPU-0000000$number)"; done ;;
  hostname) echo node0 ;;
  scontrol) printf '%s\n' node0 node1 ;;
  whoami) echo user ;;
  which|command) echo "/usr/bin/$1" ;;
  sleep) exec "$DSLINT_TOOLS/sleep" 0.01 ;;
esac
exit 0
