#!/usr/bin/env bash
# Gathers what a machine with a GPU and without Rust needs into the folder given: test programs, the bench and `run.sh`, a few
# megabytes packed, and the reference models, which `--without-models` leaves out where the sources travel as well. Build on the
# same processor family; nothing in it looks for the place where it was built.
#
# CARGO_TARGET_DIR says where tests are built, RELEASE_TARGET_DIR where the bench is.
set -euo pipefail
out="${1:?the folder to fill}"
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
mkdir -p "$out"
programs="$(mktemp -d)"
trap 'rm -rf "$programs"' EXIT

# The program that the command builds, stripped, under the name given.
program() {
  local name="$1" built
  shift
  built="$("$@" --message-format=json | python3 -c 'import json, sys
for line in sys.stdin:
    message = json.loads(line)
    wanted = message.get("profile", {}).get("test") or "example" in message.get("target", {}).get("kind", [])
    if wanted and message.get("executable"):
        print(message["executable"])')"
  [ -f "$built" ] || { echo "not one program but: $built" >&2; exit 1; }
  cp "$built" "$programs/$name"
  strip "$programs/$name"
}
program kernels-on-gpu cargo test --quiet --no-run --package gpu --test device
program models-on-gpu cargo test --quiet --no-run --package engine --test gpu
program prediction-on-gpu cargo test --quiet --no-run --package engine --test prediction
program additions-on-gpu cargo test --quiet --no-run --package engine --test low_rank
program state-on-gpu cargo test --quiet --no-run --package engine --test state
CARGO_TARGET_DIR="${RELEASE_TARGET_DIR:-${CARGO_TARGET_DIR:-target}}" \
  program bench-on-gpu cargo build --quiet --release --package tools --example gpu_bench
tar -C "$programs" -czf "$out/programs.tar.gz" kernels-on-gpu models-on-gpu prediction-on-gpu additions-on-gpu \
  state-on-gpu bench-on-gpu
# Kernels for a H100 or a H200 with a driver of CUDA 13.0, where NVRTC is here: the time there is short.
if python3 -c 'import ctypes; ctypes.CDLL("libnvrtc.so.13")' 2>/dev/null; then
  cargo run --quiet --release --package gpu --example compile -- "$out/kernels" "${PROCESSOR:-90}" "${DRIVER:-13000}"
fi
cp tests/gpu/run.sh tests/gpu/tiny.toml "$out/"
if [ "${2:-}" != --without-models ]; then
  mkdir -p "$out/tests/data"
  cp -r tests/data/reference "$out/tests/data/"
fi
du -sh "$out"
