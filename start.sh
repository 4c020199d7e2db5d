#!/usr/bin/env bash
# Builds Reprise where needed and starts it. It decides nothing: what there is to decide is in config/default.toml.
#
#   ./start.sh --preset qwen3.5-9b-64k --port 8080     flags go through to `reprise serve`
#   LLM_BACKEND=qwen3.5-9b-64k ./start.sh              chooses the preset:     [model] preset
#   CTX_SIZE=65536 ./start.sh                          overrides its window:   [model] ctx_size
#   ./start.sh --preset qwen3.5-4b --yes               fetches the preset's model without a question, if it is not there
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

# Both become settings of the one configuration, so that flags still win and --print-config names them.
[ -z "${LLM_BACKEND:-}" ] || export REPRISE__MODEL__PRESET="$LLM_BACKEND"
[ -z "${CTX_SIZE:-}" ] || export REPRISE__MODEL__CTX_SIZE="$CTX_SIZE"

binary="${CARGO_TARGET_DIR:-target}/release/reprise"
# Time of the newest build that this script began. A source that is newer, also one that changed meanwhile, is built; else even
# to ask cargo would take longer than the start.
stamp="$binary.began"
is_old() {
  local sources=(Cargo.toml Cargo.lock .cargo rust-toolchain.toml LICENSE THIRD-PARTY.txt compaction config engine migrations models
    services)
  [ ! -x "$binary" ] || [ ! -e "$stamp" ] || ! command -v find >/dev/null ||
    [ -n "$(find "${sources[@]}" -newer "$stamp" -print -quit 2>/dev/null)" ]
}

if command -v cargo >/dev/null; then
  if is_old; then
    mkdir -p "${binary%/*}"
    : > "$stamp.new"
    cargo build --release --locked --package reprise
    mv "$stamp.new" "$stamp"
  fi
elif [ ! -x "$binary" ]; then
  echo "start.sh: no cargo here and no $binary; install Rust from https://rustup.rs" >&2
  exit 1
fi
exec "$binary" serve "$@"
