#!/usr/bin/env bash
# Builds Reprise where needed and starts it. It decides nothing: what there is to decide is in config/default.toml.
#
#   ./start.sh --preset qwen3.5-9b-64k --port 8080     flags go through to `reprise serve`
#   LLM_BACKEND=qwen3.5-9b-64k ./start.sh              chooses the preset:     [model] preset
#   CTX_SIZE=65536 ./start.sh                          overrides its window:   [model] ctx_size
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

# Both become settings of the one configuration, so that flags still win and --print-config names them.
[ -z "${LLM_BACKEND:-}" ] || export REPRISE__MODEL__PRESET="$LLM_BACKEND"
[ -z "${CTX_SIZE:-}" ] || export REPRISE__MODEL__CTX_SIZE="$CTX_SIZE"

binary="${CARGO_TARGET_DIR:-target}/release/reprise"
if command -v cargo >/dev/null; then
  cargo build --release --locked --package reprise
elif [ ! -x "$binary" ]; then
  echo "start.sh: no cargo here and no $binary; install Rust from https://rustup.rs" >&2
  exit 1
fi
exec "$binary" serve "$@"
