#!/usr/bin/env bash
# Installs the built packages in a Debian root that systemd-nspawn boots, and lets guest_checks.sh judge them there.
# Usage: boot_packages_test.sh PACKAGE_FOLDER CACHE_FOLDER [FILE_FOR_THE_ROOT...]. Exit status 77 = skipped, with the reason.
set -euo pipefail

readonly packages=$1 cache=$2
shift 2
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly here boot_seconds=560

# shellcheck source=tests/systemd/debian_root.sh
. "$here/debian_root.sh"
find_packages "$packages"
make_bare_root

root=$(mktemp -d "$cache/run-XXXXXX")
readonly root
trap 'rm -rf "$root"; rmdir "/run/systemd/nspawn/propagate/${root##*/}" 2>/dev/null || true' EXIT
cp -a --reflink=auto "$bare/." "$root"
mkdir "$root/gradsieve-test"
cp "${debs[@]}" "$here/guest_checks.sh" "$here/checks.sh" "$@" "$root/gradsieve-test"
cp "$here/guest_checks.service" "$root/etc/systemd/system/"
ln -s ../guest_checks.service "$root/etc/systemd/system/multi-user.target.wants/"

# A root that cannot boot at all says so in its console; the checks' own verdict is in the results.
readonly console=$cache/console.log results=$root/gradsieve-test/results
timeout --kill-after=10 "$boot_seconds" systemd-nspawn --quiet --directory="$root" --register=no --keep-unit \
    --private-network --console=pipe --boot </dev/null >"$console" 2>&1 || echo "systemd-nspawn ended with $?"
if [[ ! -s $results ]]; then
    tail -20 "$console"
    skip "the root does not boot here: $(grep -m1 . "$console" || echo 'no word from systemd-nspawn')"
fi
cat "$results"
grep -q '^ok .*' "$results" && grep -qx 'all checks done' "$results" && ! grep -q '^FAILED' "$results"
