#!/usr/bin/env bash
# Puts what `run.sh peer` builds llama.cpp's bench from into the folder given, three megabytes: its sources as the Python package
# has them, without what other hardware needs.
set -euo pipefail
out="$(realpath "${1:?the folder to fill}")"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip download --quiet --no-deps --no-binary llama-cpp-python "llama-cpp-python==${VERSION:-0.3.36}"
tar -xzf llama_cpp_python-*.tar.gz
cd llama_cpp_python-*/vendor/llama.cpp
# Of its tools, the one.
printf 'llama_add_compile_flags()\nadd_subdirectory(llama-bench)\n' >tools/CMakeLists.txt
tar -czf "$out/peer.tar.gz" CMakeLists.txt LICENSE cmake common include src vendor tools/CMakeLists.txt tools/llama-bench \
  ggml/CMakeLists.txt ggml/cmake ggml/include ggml/src/*.* ggml/src/ggml-cpu ggml/src/ggml-cuda
du -sh "$out/peer.tar.gz"
