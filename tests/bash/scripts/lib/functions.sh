# Read by source-args.sh.
DEFAULT_GPUS=2
launch_with() {
  local gpus=$1
  shift
  torchrun --nproc_per_node "$gpus" "$@"
}
model_of() { echo "opt-$1"; }
