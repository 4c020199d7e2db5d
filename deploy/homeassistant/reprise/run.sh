#!/usr/bin/env bash
# Starts Reprise with the options that the Supervisor wrote, and tells Home Assistant of its Wyoming port.
set -euo pipefail

options="${OPTIONS:-/data/options.json}"
option() { jq --raw-output "$1" "$options"; }

REPRISE__MODEL__PRESET="$(option '.preset // "auto"')"
REPRISE__SERVER__ALLOWED_HOSTS="$(option '[.allowed_hosts[]?, $ENV.HOSTNAME] | tojson')"
export REPRISE__MODEL__PRESET REPRISE__SERVER__ALLOWED_HOSTS
export REPRISE__SERVER__HOST=0.0.0.0
# The protocol has no keys. Home Assistant reaches the port inside its own network; it is published only if you say so.
export REPRISE__WYOMING__HOST=0.0.0.0 REPRISE__WYOMING__PORT=10500 REPRISE__WYOMING__WITHOUT_KEY=true

arguments=(serve)
key="$(option '.api_key // ""')"
[ -z "$key" ] || arguments+=(--api-key "$key")
while IFS= read -r setting; do
  arguments+=(--set "$setting")
done < <(option '.settings[]?')

if [ -n "${SUPERVISOR_TOKEN:-}" ]; then
  # In the background, once the port answers; without it Home Assistant is told host and port by hand.
  (
    until curl --silent --fail --output /dev/null http://127.0.0.1:8080/healthz; do sleep 2; done
    curl --silent --show-error --fail --output /dev/null --request POST http://supervisor/discovery \
      --header "Authorization: Bearer $SUPERVISOR_TOKEN" --header 'content-type: application/json' \
      --data "$(jq --null-input '{service: "wyoming", config: {uri: "tcp://\($ENV.HOSTNAME):10500"}}')"
  ) &
fi
exec "${REPRISE:-/usr/local/bin/reprise}" "${arguments[@]}"
