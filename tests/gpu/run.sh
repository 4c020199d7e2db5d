#!/usr/bin/env bash
# The one command for a machine with a GPU: every kernel against its definition, whole reference models, and NVIDIA's
# checkers over the same programs. `build.sh` made the folder that this lies in. A missing GPU is a failure here.
#
#   ./run.sh          all of it
#   ./run.sh quick    without the checkers
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
export REQUIRE_CUDA=1 RUST_BACKTRACE=0 REPRISE_REFERENCE="$PWD/tests/data/reference"
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader || true

# NVRTC comes with the toolkit, or with the Python package.
if ! ldconfig -p | grep -q libnvrtc.so; then
  nvrtc="$(find / -name 'libnvrtc.so*' -not -path '*/proc/*' 2>/dev/null | head -n 1)"
  export LD_LIBRARY_PATH="$(dirname "${nvrtc:-/}")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
fi

table=()
failed=0
run() {
  local name="$1" started=$SECONDS
  shift
  if "$@" >"$name.log" 2>&1; then
    table+=("ok      $((SECONDS - started)) s  $name")
  else
    table+=("FAILED  $((SECONDS - started)) s  $name")
    failed=1
    grep -E 'panicked|distance|ERROR|Error|error' "$name.log" | head -n 20
  fi
}

run kernels env GPU_CASES=4 ./kernels-on-gpu --nocapture
run models ./models-on-gpu --nocapture
if [ "${1:-}" != quick ]; then
  checker() { compute-sanitizer --error-exitcode 1 --tool "$@"; }
  # Random problems take their time under a checker: few of them, and the compiler's own test not at all.
  for tool in memcheck racecheck initcheck synccheck; do
    run "kernels-$tool" env GPU_CASES=1 bash -c "$(declare -f checker); checker $tool ./kernels-on-gpu --skip nvrtc"
  done
  run models-memcheck bash -c "$(declare -f checker); checker memcheck ./models-on-gpu a_past several quantised"
fi

grep -hE 'in chunks of|round|state:|convolution:|past:' models.log
printf '%s\n' "${table[@]}"
exit "$failed"
