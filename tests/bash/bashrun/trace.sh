# What every bash of a run reads first (BASH_ENV): commands that are not there are recorded, and the environment of
# each program says which line of which file started it, behind the line that started the bash around it.
set -T
__outer=${DSLINT_AT-}
trap 'export DSLINT_AT="${__outer-}|${BASH_SOURCE[0]-}:$LINENO"' DEBUG
command_not_found_handle() {
  "$DSLINT_STUBS/.record" "$@"
}
