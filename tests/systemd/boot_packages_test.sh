#!/usr/bin/env bash
# Installs the built packages in a Debian root that systemd-nspawn boots, and lets guest_checks.sh judge them there.
# Usage: boot_packages_test.sh PACKAGE_FOLDER CACHE_FOLDER [FILE_FOR_THE_ROOT...]. Exit status 77 = skipped, with the reason.
# The bare root is made once by debootstrap and kept in CACHE_FOLDER; each run works on a copy.
set -euo pipefail

readonly packages=$1 cache=$2
shift 2
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly here boot_seconds=560

skip() { echo "skipped: $*"; exit 77; }

[[ $EUID == 0 ]] || skip "booting a root needs root"
for tool in debootstrap systemd-nspawn dpkg-deb; do
    command -v "$tool" >/dev/null || skip "$tool is not installed: ./dev setup --full"
done
# shellcheck source=/dev/null
. /etc/os-release
[[ ${ID-} == debian && -n ${VERSION_CODENAME-} ]] || skip "the packages are for Debian; this is ${PRETTY_NAME-unknown}"
shopt -s nullglob
debs=("$packages"/*.deb)
((${#debs[@]})) || skip "no packages in $packages: ./dev package"
source=$(cd "$here/../.." && pwd)
newer=$(find "$source" \( -name build -o -name .git -o -name tests -o -name docs \) -prune -o \
    -type f \( -name '*.[ch]pp' -o -name '*.[ch]' -o -path '*/systemd/*' -o -path '*/python/*.py' \) -newer "${debs[0]}" -print -quit)
[[ -z $newer ]] || skip "the packages in $packages are older than ${newer#"$source/"}: ./dev package"

# The host's own Debian mirror.
mirror=$(apt-get indextargets --format '$(SITE) $(CODENAME) $(LABEL)' 'Created-By: Packages' 2>/dev/null |
    awk -v suite="$VERSION_CODENAME" '$2 == suite && $3 == "Debian" {print $1; exit}') || true
readonly mirror=${mirror:-http://deb.debian.org/debian}
# What the packages depend on, without versions, alternatives and themselves. Some are virtual: apt resolves those.
dependencies=$(for deb in "${debs[@]}"; do dpkg-deb -f "$deb" Depends; done | tr ',' '\n' |
    sed -E 's/\|.*//; s/\(.*\)//; s/[[:space:]]//g; /^$/d; /gradsieve/d' | sort -u | paste -sd' ')
readonly dependencies

in_root() { # ROOT COMMAND...: with the host's network
    systemd-nspawn --quiet --directory="$1" --register=no --keep-unit --console=pipe --setenv=DEBIAN_FRONTEND=noninteractive \
        "${@:2}" </dev/null >>"$cache/prepare.log" 2>&1
}
bare=$cache/root-$(printf '%s' "$VERSION_CODENAME $dependencies" | cksum | cut -d' ' -f1)
readonly bare
if [[ ! -d $bare ]]; then
    mkdir -p "$cache"
    rm -rf "$bare.partial"
    echo "making $bare from $mirror"
    debootstrap --variant=minbase --include=systemd,systemd-sysv "$VERSION_CODENAME" "$bare.partial" "$mirror" \
        >"$cache/prepare.log" 2>&1 || skip "debootstrap from $mirror failed: $(tail -1 "$cache/prepare.log")"
    in_root "$bare.partial" apt-get update || skip "no apt inside the root: $(tail -1 "$cache/prepare.log")"
    # shellcheck disable=SC2086  # a list
    in_root "$bare.partial" apt-get install -y --no-install-recommends $dependencies ||
        { tail -5 "$cache/prepare.log"; echo "FAILED the packages' dependencies can be installed"; exit 1; }
    rm -rf "$bare.partial"/var/cache/apt/archives/*.deb
    mv "$bare.partial" "$bare"
fi

root=$(mktemp -d "$cache/run-XXXXXX")
readonly root
trap 'rm -rf "$root"; rmdir "/run/systemd/nspawn/propagate/${root##*/}" 2>/dev/null || true' EXIT
cp -a --reflink=auto "$bare/." "$root"
mkdir "$root/gradsieve-test"
cp "${debs[@]}" "$here/guest_checks.sh" "$@" "$root/gradsieve-test"
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
