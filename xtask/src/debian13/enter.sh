# SPDX-License-Identifier: MIT OR Apache-2.0
# Runs a command in a root file system: `enter.sh ROOT FOLDER PATH... -- COMMAND...`, each PATH at the same place within,
# the command in FOLDER. debian13.rs starts it in a mount namespace of its own (`unshare --mount`), so that what is mounted
# here is seen by nobody else and is gone with the last process, however that ends.
set -eu
root=$1
folder=$2
shift 2

bind() {
    [ -e "$1" ] || return 0
    mkdir -p "$root$1"
    mount --rbind "$1" "$root$1"
}

# The paths first: the root may lie in one of them, and would be seen in itself with what is mounted below.
while [ "$1" != -- ]; do
    bind "$1"
    shift
done
shift
for path in /proc /sys /dev /tmp; do
    bind "$path"
done
# The network is that of outside, and so are its names.
for file in /etc/resolv.conf /etc/hosts /etc/hostname; do
    if [ -e "$file" ]; then
        cat "$file" >"$root$file"
    fi
done
mkdir -p "$root${HOME:-/root}"
exec chroot "$root" /usr/bin/env --chdir="$folder" "$@"
