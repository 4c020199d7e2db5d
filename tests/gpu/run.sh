#!/usr/bin/env bash
# The one command for a machine with a GPU: every kernel against its definition, whole reference models, the engine's random
# histories, NVIDIA's checkers over the same programs, and the bench. `build.sh` made the folder that this lies in. A missing
# GPU is a failure here, but for `dry`.
#
#   ./run.sh          everything but the bench, for as long as it takes
#   ./run.sh quick    kernels, models and histories, and one checker over some of them: under eight minutes
#   ./run.sh bench    the table of issue 9 with random models, under nine minutes: bench.jsonl
#   ./run.sh peer     llama.cpp on the same random model, where `peer.sh` put its sources beside this: peer.jsonl, under ten
#                     minutes, of which four build it
#   ./run.sh dry      all of this on an emulated GPU, to see that it runs: no number of it means anything
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
mode="${1:-all}"
here="$PWD"
# Where the sources travelled too, the models are theirs.
for models in "$here/tests/data/reference" "$here/../tests/data/reference" "$here/../../tests/data/reference"; do
  [ -d "$models" ] && break
done
work="${WORK:-$here}"
mkdir -p "$work"
tar -C "$work" -xzf programs.tar.gz
cd "$work"
# What was compiled before, for programs and tests.
if [ -d "$here/kernels" ]; then
  mkdir -p kernels /tmp/reprise-gpu-tests/cubin
  cp -n "$here"/kernels/* kernels/
  cp -n "$here"/kernels/* /tmp/reprise-gpu-tests/cubin/
fi
export RUST_BACKTRACE=0 REPRISE_REFERENCE="$models"
cases=4
if [ "$mode" = dry ]; then
  cases=1
else
  export REQUIRE_CUDA=1
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader || true
fi

# NVRTC comes with the toolkit, or with the Python package.
if [ "$mode" != dry ] && ! ldconfig -p | grep -q libnvrtc.so; then
  nvrtc="$(find / -name 'libnvrtc.so*' -not -path '*/proc/*' 2>/dev/null | head -n 1)"
  export LD_LIBRARY_PATH="$(dirname "${nvrtc:-/}")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
fi

table=()
failed=0
# Each in its own time, so that one that hangs leaves room for the others.
run() {
  local name="$1" limit_s="$2" started=$SECONDS
  shift 2
  if timeout "$limit_s" "$@" >"$name.log" 2>&1; then
    table+=("ok      $((SECONDS - started)) s  $name")
  else
    table+=("FAILED  $((SECONDS - started)) s  $name")
    failed=1
    grep -E 'panicked|distance|ERROR|Error|error' "$name.log" | head -n 20
  fi
}
checked() {
  local name="$1" limit_s="$2" tool="$3"
  shift 3
  if ! command -v compute-sanitizer >/dev/null; then
    table+=("skipped       $name: there is no compute-sanitizer")
    return
  fi
  run "$name" "$limit_s" env GPU_CASES=1 GPU_NO_OVERLAP=1 compute-sanitizer --error-exitcode 1 --tool "$tool" "$@"
}
tests() {
  # That every processor's programs compile needs no GPU, and takes minutes.
  run kernels "$1" env GPU_CASES="$cases" ./kernels-on-gpu --nocapture --skip nvrtc --skip stand_in
  run models "$1" ./models-on-gpu --nocapture --skip as_a_driver
  run prediction "$1" ./prediction-on-gpu --nocapture on_a_device
  run additions "$1" ./additions-on-gpu --nocapture a_gpu
  run histories "$1" ./state-on-gpu --nocapture device:: drafts::a_reply_with_drafts_is_the_reply_without_on_a_device
}
# Random problems take their time under a checker: few of them, and the compiler's own test not at all.
bench() {
  local name="$1" limit_s="$2"
  shift 2
  run "bench-$name" "$limit_s" ./bench-on-gpu --model "model-$name.gguf" --kernels "$work/kernels" "$@"
  grep -h '^{' "bench-$name.log" | tee -a bench.jsonl
  [ "$mode" = peer ] || rm -f "model-$name.gguf"
}
# As long a prompt, as deep a token, keys and values kept the same way.
peer() {
  local name="$1" limit_s="$2"
  shift 2
  run "peer-$name" "$limit_s" build/bin/llama-bench --model "model-$name.gguf" --flash-attn 1 --n-gpu-layers 99 \
    --cache-type-k q8_0 --cache-type-v q8_0 --ubatch-size 1024 --output jsonl "$@"
  grep -h '^{' "peer-$name.log" | tee -a peer.jsonl
}

case "$mode" in
quick)
  tests 110
  checked kernels-memcheck 110 memcheck ./kernels-on-gpu --skip nvrtc --skip stand_in delta attention convolution snapshot
  checked kernels-racecheck 60 racecheck ./kernels-on-gpu --skip nvrtc --skip stand_in product::few attention
  checked models-memcheck 60 memcheck ./models-on-gpu a_past several
  ;;
bench)
  : >bench.jsonl
  bench 9B-q4_k_m 330 --shape 9B --quant q4_k_m --ctx 512,4096,32768,131072 --history 16384 \
    --windows 16384,32768,65536,131072,262144 --kv q8_0,f16,q8_0:q4_0,tq4,tq4:tq3 --chunk "${CHUNK:-1024}"
  bench 35B-A3B-q4_k_m 200 --shape 35B-A3B --quant q4_k_m --ctx 512,4096 --decode 64 --chunk "${CHUNK:-1024}"
  ;;
peer)
  : >bench.jsonl
  : >peer.jsonl
  tar -xzf "$here/peer.tar.gz"
  run peer-configure 60 cmake -B build -DCMAKE_BUILD_TYPE=Release -DGGML_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES=native \
    -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_APP=OFF -DLLAMA_OPENSSL=OFF
  run peer-build 330 cmake --build build --target llama-bench --parallel
  # The two by turns, in the same minutes.
  bench 9B-q4_k_m 100 --shape 9B --quant q4_k_m --ctx 512,4096,32768 --rounds 3 --history 2048 --chunk "${CHUNK:-1024}"
  peer 9B-q4_k_m 60 --n-prompt 4096,32768 --n-gen 0 --repetitions 3
  peer 9B-q4_k_m 60 --n-prompt 0 --n-gen 64 --n-depth 512,32768 --repetitions 3
  ;;
dry)
  tests 600
  : >bench.jsonl
  bench dry 300 --shape "$here/tiny.toml" --quant q8_0 --ctx 8,40 --history 20 --windows 1024 --chunk 32 --decode 3 \
    --batch 2 --rounds 1 --copy-mib 1 --emulated "$work/emulated"
  ;;
all)
  tests 600
  for tool in memcheck racecheck initcheck synccheck; do
    checked "kernels-$tool" 1800 "$tool" ./kernels-on-gpu --skip nvrtc --skip stand_in
  done
  checked models-memcheck 1800 memcheck ./models-on-gpu a_past several quantised
  checked histories-memcheck 1800 memcheck ./state-on-gpu device::a_history
  ;;
*)
  echo "$mode: expected quick, bench, peer, dry or nothing" >&2
  exit 2
  ;;
esac

grep -hsE 'in chunks of|round|state:|convolution:|past:' models.log
printf '%s\n' "${table[@]}"
exit "$failed"
