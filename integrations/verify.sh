#!/usr/bin/env bash
# Has a Lockstep service verify a strategy, for a CI job: follows the run, leaves a summary and JUnit, and fails the job
# if the strategy is wrong. Used by action.yml and by integrations/gitlab.yml.
#
#   LOCKSTEP_SERVER=https://... LOCKSTEP_API_KEY=... integrations/verify.sh STRATEGY [flags of 'lockstep submit'...]
#
# Exit codes are those of 'lockstep verify': 0 pass, 1 fail, 2 wrong usage, 3 unknown, cancelled or the service's own error.
set -euo pipefail

summary=${LOCKSTEP_SUMMARY:-lockstep-summary.md}
junit=${LOCKSTEP_JUNIT:-lockstep-junit.xml}

run=$(lockstep submit "$@")
code=0
lockstep watch "$run" || code=$?
if [ "$code" = 0 ] || [ "$code" = 1 ] || [ "$code" = 3 ]; then
  # A run that was cancelled has no report; its exit code says enough.
  if lockstep runs report "$run" --format junit --output "$junit" 2>/dev/null || [ -s "$junit" ]; then
    lockstep runs report "$run" --format markdown >>"$summary" || true
  fi
fi
exit "$code"
