# SPDX-License-Identifier: MIT OR Apache-2.0
# Runs a command in a root file system: `enter.sh ROOT FOLDER PATH... -- COMMAND...`, with each PATH mounted at its own
# path, the command in FOLDER. debian13/mod.rs starts it in a mount namespace (`unshare --mount`), so that no other process
# sees these mounts, and they disappear with the last process.
set -eu
root=$1
folder=$2
shift 2

bind() {
    [ -e "$1" ] || return 0
    mkdir -p "$root$1"
    mount --rbind "$1" "$root$1"
}

# The paths first: the root may lie in one of them, which would then show the mounts below inside the root.
while [ "$1" != -- ]; do
    bind "$1"
    shift
done
shift
for path in /proc /sys /dev /tmp; do
    bind "$path"
done
# The root uses the host's network, and so its names.
for file in /etc/resolv.conf /etc/hosts /etc/hostname; do
    if [ -e "$file" ]; then
        cat "$file" >"$root$file"
    fi
done
mkdir -p "$root${HOME:-/root}"
exec chroot "$root" /usr/bin/env --chdir="$folder" "$@"
