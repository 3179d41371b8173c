# The Debian root that packages are tried in: made once by debootstrap, kept in a cache folder, worked on in copies. Sourced by the
# scripts that boot it; `here` is their folder, `cache` the one for the root. Exit status 77 = skipped, with the reason.

skip() { echo "skipped: $*"; exit 77; }

# find_packages FOLDER: `debs` are the packages, none older than the sources; `dependencies` what they need from Debian.
find_packages() {
    local folder=$1 source newer
    [[ $EUID == 0 ]] || skip "booting a root needs root"
    for tool in debootstrap systemd-nspawn dpkg-deb; do
        command -v "$tool" >/dev/null || skip "$tool is not installed: ./dev setup --full"
    done
    # shellcheck source=/dev/null
    . /etc/os-release
    [[ ${ID-} == debian && -n ${VERSION_CODENAME-} ]] || skip "the packages are for Debian; this is ${PRETTY_NAME-unknown}"
    shopt -s nullglob
    debs=("$folder"/*.deb)
    ((${#debs[@]})) || skip "no packages in $folder: ./dev package"
    source=$(cd "$here/../.." && pwd)
    newer=$(find "$source" \( -name build -o -name .git -o -name tests -o -name docs \) -prune -o \
        -type f \( -name '*.[ch]pp' -o -name '*.[ch]' -o -path '*/systemd/*' -o -path '*/python/*.py' \) -newer "${debs[0]}" -print -quit)
    [[ -z $newer ]] || skip "the packages in $folder are older than ${newer#"$source/"}: ./dev package"
    # Without versions, alternatives and the packages themselves. Some are virtual: apt resolves those.
    dependencies=$(for deb in "${debs[@]}"; do dpkg-deb -f "$deb" Depends; done | tr ',' '\n' |
        sed -E 's/\|.*//; s/\(.*\)//; s/[[:space:]]//g; /^$/d; /gradsieve/d' | sort -u | paste -sd' ')
}

in_root() { # ROOT COMMAND...: with the host's network
    systemd-nspawn --quiet --directory="$1" --register=no --keep-unit --console=pipe --setenv=DEBIAN_FRONTEND=noninteractive \
        "${@:2}" </dev/null >>"$cache/prepare.log" 2>&1
}

# make_bare_root: `bare`, in the folder `cache`, is a root with the packages' dependencies and without the packages.
make_bare_root() {
    local mirror
    # The host's own Debian mirror.
    mirror=$(apt-get indextargets --format '$(SITE) $(CODENAME) $(LABEL)' 'Created-By: Packages' 2>/dev/null |
        awk -v suite="$VERSION_CODENAME" '$2 == suite && $3 == "Debian" {print $1; exit}') || true
    mirror=${mirror:-http://deb.debian.org/debian}
    bare=$cache/root-$(printf '%s' "$VERSION_CODENAME $dependencies" | cksum | cut -d' ' -f1)
    [[ ! -d $bare ]] || return 0
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
}
