#!/usr/bin/env bash
# pack_bundle.sh FOLDER FILE...: makes FOLDER a bundle that runs on another x86-64 Linux host which has an NVIDIA driver and none
# of the project's libraries: bin/ with the FILEs (programs, libraries, data; folders whole), lib/ with every shared library
# that they load except the C and C++ runtimes and the driver's own, and env.sh to source there.
set -euo pipefail

(($# >= 2)) || { sed -n '2,4s/^# //p' "$0" >&2; exit 2; }
bundle=$1
shift
mkdir -p "$bundle/bin" "$bundle/lib"
cp -rL "$@" "$bundle/bin/"

# Belong to the host: they must match its kernel, loader or driver.
readonly OF_THE_HOST='^(ld-linux-x86-64|libc|libm|libdl|librt|libpthread|libresolv|libstdc\+\+|libgcc_s|libcuda|libnvidia-.*)\.so'

find "$bundle/bin" -type f -print0 | while IFS= read -r -d '' file; do
    # Lines are "name => path (address)"; scripts and data have none.
    ldd "$file" 2>/dev/null | awk '$2 == "=>" && $3 ~ "^/" { print $3 }' || true
done | sort -u | while IFS= read -r library; do
    [[ $(basename "$library") =~ $OF_THE_HOST ]] || cp -L "$library" "$bundle/lib/"
done

cat >"$bundle/env.sh" <<'END'
# Source this: puts the bundle's programs and libraries first.
bundle=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export PATH=$bundle/bin:$PATH
export LD_LIBRARY_PATH=$bundle/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
END
du -sh "$bundle"
