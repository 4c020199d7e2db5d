#!/usr/bin/env bash
# Makes a release in dist/, or a part of it:
#
#   deploy/release.sh                     the binary, an archive, checksums, an SBOM, notes out of CHANGELOG.md
#   deploy/release.sh --glibc 2.31        the same, and fails where the binary needs a newer glibc than that
#   deploy/release.sh --check BINARY      one file of at most 46 MB, without symbols, that needs libc alone
#   deploy/release.sh --notes VERSION     the notes of a version
#   deploy/release.sh --sbom              the SBOM (CycloneDX), out of Cargo.lock
#   deploy/release.sh --chroot BINARY     starts it where there is nothing but Debian's libc: ready within a second (root)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# The aim was 30 MB. deploy/README.md says what was tried and what it costs; this holds what was reached.
most_bytes=46000000

fail() { echo "release.sh: $*" >&2; exit 1; }

version() { sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml; }

# The section of a version, or of what is not released yet.
notes() {
  local text
  text="$(awk -v wanted="## [$1]" 'index($0, wanted) == 1 { found = 1; next } /^## / { found = 0 } found' CHANGELOG.md)"
  [ -n "$text" ] || fail "CHANGELOG.md says nothing about $1"
  printf '%s\n' "$text" | sed '/./,$!d'
}

sbom() {
  command -v jq >/dev/null || fail "the SBOM needs jq"
  cargo metadata --format-version 1 --locked --filter-platform "$(rustc -vV | sed -n 's/^host: //p')" |
    jq --arg version "$(version)" '
      (.resolve.nodes | map({(.id): [.deps[] | select(any(.dep_kinds[]; .kind != "dev")) | .pkg]}) | add) as $uses
      | (.packages[] | select(.name == "reprise") | .id) as $root
      | def reach($seen): . as $now
          | ([$now[] | $uses[.][]?] | unique - $seen) as $new
          | if $new == [] then $seen else ($new | reach($seen + $new)) end;
      ([$root] | reach([$root])) as $all
      | {bomFormat: "CycloneDX", specVersion: "1.5", version: 1,
         metadata: {component: {type: "application", name: "reprise", version: $version}},
         components: [.packages[] | select(.id as $id | $all | index($id)) | select(.source != null)
           | {type: "library", name, version, purl: "pkg:cargo/\(.name)@\(.version)",
              licenses: [{expression: (.license // "NOASSERTION")}]}]}'
}

# Checks what is handed out: $1 the binary, $2 the newest glibc that it may need, if any.
check() {
  local bytes needed newest
  [ -f "$1" ] || fail "there is no $1"
  bytes="$(stat --format %s "$1")"
  [ "$bytes" -le "$most_bytes" ] || fail "$1 has $bytes bytes, and $most_bytes are the most"
  [ -z "$(objdump --syms "$1" | grep '\.text' || true)" ] || fail "$1 has symbols: strip it"
  needed="$(objdump --private-headers "$1" | awk '$1 == "NEEDED" { print $2 }' |
    grep -vE '^(libc|libm|libgcc_s|libdl|libpthread|librt|ld-linux-[a-z0-9-]+)\.so' || true)"
  [ -z "$needed" ] || fail "$1 needs $needed"
  newest="$(objdump --dynamic-syms "$1" | grep -oE 'GLIBC_[0-9.]+' | sort --version-sort | tail -n 1)"
  echo "$1: $bytes bytes, ${newest:-no glibc}"
  if [ -n "${2:-}" ] && [ "$(printf '%s\n' "${newest#GLIBC_}" "$2" | sort --version-sort | tail -n 1)" != "$2" ]; then
    fail "$1 needs $newest, newer than $2: build it on an older system"
  fi
}

# Starts a binary where there is nothing but Debian's libc6 and libgcc-s1: no shell, no /proc, no certificates.
in_chroot() {
  local begin took pid
  [ "$(id -u)" = 0 ] || fail "--chroot needs root"
  root="$(mktemp --directory)" # not local: the trap runs when the function has ended
  trap 'rm -rf --one-file-system "${root:?}"' EXIT
  (cd "$root" && apt-get download --quiet libc6 libgcc-s1 > /dev/null 2>&1 && for package in *.deb; do
    dpkg-deb --extract "$package" . && rm "$package"
  done)
  cp "$1" "$root/reprise"
  begin="$(date +%s%N)"
  : > "$root/screen"
  env --ignore-environment HOME=/ "$(command -v chroot)" "$root" /reprise serve --port 0 > "$root/screen" 2> "$root/log" &
  pid=$!
  until grep --quiet 'reprise chat' "$root/screen"; do
    kill -0 "$pid" 2>/dev/null || { cat "$root/log" >&2; fail "it ended"; }
    [ $((($(date +%s%N) - begin) / 1000000)) -lt 60000 ] || { kill -9 "$pid"; fail "not ready after a minute"; }
    sleep 0.01
  done
  took=$((($(date +%s%N) - begin) / 1000000))
  kill "$pid"
  wait "$pid" || true
  echo "ready after $took ms beside libc6 and libgcc-s1 alone"
  [ "$took" -le 1000 ] || fail "more than a second"
}

release() {
  local glibc="${1:-}" name target
  [ -z "$(git status --porcelain)" ] || fail "the tree has changes that no commit has"
  target="${CARGO_TARGET_DIR:-target}"
  cargo build --profile dist --locked --package reprise
  name="reprise-$(version)-linux-$(uname -m)"
  rm -rf dist
  mkdir -p "dist/$name"
  # Lines of backtraces stay beside the archive.
  objcopy --only-keep-debug "$target/dist/reprise" "dist/$name.debug"
  strip -o "dist/$name/reprise" "$target/dist/reprise"
  check "dist/$name/reprise" "$glibc"
  "dist/$name/reprise" man "dist/$name/man"
  mkdir "dist/$name/completions"
  local shell
  for shell in bash zsh fish; do
    "dist/$name/reprise" completions "$shell" > "dist/$name/completions/reprise.$shell"
  done
  cp README.md LICENSE THIRD-PARTY.txt CHANGELOG.md "dist/$name/"
  cp -r docs deploy "dist/$name/"
  tar --create --gzip --file "dist/$name.tar.gz" --directory dist --owner 0 --group 0 --sort name "$name"
  sbom > "dist/$name.cdx.json"
  notes "$(version)" > dist/NOTES.md
  (cd dist && sha256sum "$name.tar.gz" "$name.cdx.json" > SHA256SUMS)
  cat dist/SHA256SUMS
}

case "${1:-}" in
  '') release ;;
  --glibc) release "${2:?}" ;;
  --check) check "${2:?}" "${3:-}" ;;
  --notes) notes "${2:?}" ;;
  --sbom) sbom ;;
  --chroot) in_chroot "${2:?}" ;;
  *) fail "unknown: $1" ;;
esac
