#!/bin/busybox sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# The first program of a guest, and again (as "start") the first on its final root. Its variables are in /fabric/settings.
# Trouble is collected and handed to the agent, which reports it; only what keeps the agent from starting ends the guest.
B=/fabric/busybox

mount_root() {
    $B mount -t proc proc /proc
    $B mount -t sysfs sysfs /sys
    $B mount -t devtmpfs dev /dev
    for module in $BOOT_MODULES; do
        $B insmod "/fabric/modules/$module.ko" || echo "insmod $module failed"
    done
    # Mapped files and names stay cached even so: a guest sees what changes on the host only after drop_caches.
    $B mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,ro,cache=none host /lower || $B poweroff -f
    $B mount -t tmpfs -o mode=755 memory /upper
    $B mkdir /upper/files /upper/work
    $B mount -t overlay -o lowerdir=/lower,upperdir=/upper/files,workdir=/upper/work root /root || $B poweroff -f
    for folder in proc sys dev; do $B mount -o move "/$folder" "/root/$folder"; done
    $B mount -t tmpfs -o mode=755 memory /root/run
    $B cp -r /fabric /root/run/fabric
    # switch_root by the first process makes the kernel's own calls (modprobe) see the final root. The shell there is the
    # host's: busybox's would take its own ip and modprobe, which know neither xz nor mtu.
    exec $B switch_root /root /bin/sh /run/fabric/init start
}

step() { "$@" >/run/fabric/output 2>&1 || trouble="$trouble\`$*\` failed: $($B cat /run/fabric/output); "; }

start() {
    B=/run/fabric/busybox
    trouble=
    export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
    $B mkdir -p /dev/pts /dev/shm
    step $B mount -t devpts devpts /dev/pts
    step $B mount -t tmpfs memory /dev/shm
    $B mkdir -p /run/lock /lib/modules
    $B ln -s "$MODULES" "/lib/modules/$($B uname -r)"
    $B hostname "node$NODE"
    {
        echo "127.0.0.1 localhost"
        echo "192.168.77.1 node0"
        if [ "$NODES" = 2 ]; then echo "192.168.77.2 node1"; fi
    } >/run/fabric/hosts
    # The host's own file may be a link to elsewhere: bind over what it resolves to.
    step $B mount -o bind /run/fabric/hosts /etc/hosts
    printf '#!/bin/sh\nexec /run/fabric/agent rsh "$@"\n' >/run/fabric/rsh
    $B chmod 755 /run/fabric/rsh
    step $B cp "$AGENT" /run/fabric/agent
    network
    # The kernel boots on one processor: QEMU's translator, with several, now and then runs code of the kernel that is being
    # patched, and the guest dies of it. Nearly all patching is done by now; the first connections, which nobody accepts,
    # cause what is left: the kernel patches their code a moment later.
    for address in 127.0.0.1 ::1; do $B nc -w 1 "$address" 9 </dev/null >/dev/null 2>&1; done
    $B usleep 100000
    for processor in /sys/devices/system/cpu/cpu[1-9]*; do
        echo 1 >"$processor/online" || trouble="$trouble$processor does not start; "
    done
    if ! $B grep -q tsc_early_khz /proc/cmdline && $B dmesg | $B grep -q "tsc: PIT calibration deviates"; then
        trouble="${trouble}the kernel measured a wrong rate of its clock; "
    fi
    # The adapter is the kernel's workers. Let loose on all processors, they settle with two spinning ranks into one of two
    # states, in which a message takes one time or twice that, for programs of any kind; on one processor there is one state.
    echo 1 >/sys/devices/virtual/workqueue/cpumask || trouble="${trouble}rxe's workers cannot be put on one processor; "
    /run/fabric/agent guest --node "$NODE" --nodes "$NODES" --trouble "$trouble"
    $B poweroff -f
}

network() {
    step ip link set lo up
    if [ "$NODES" = 1 ]; then
        step modprobe veth
        step ip link add eth0 type veth peer name eth0peer
        step ip link set eth0peer mtu 9000 up
    else
        step modprobe virtio_net
    fi
    step ip link set eth0 mtu 9000 up
    step ip address add "192.168.77.$((NODE + 1))/24" dev eth0
    # Needed by rxe, but not in its list of dependencies; later kernels have it built in.
    modprobe -q crc32_generic
    step modprobe rdma_rxe
    step modprobe rdma_ucm
    step modprobe ib_uverbs
    step rdma link add rxe0 type rxe netdev eth0
}

if [ "$1" = start ]; then
    . /run/fabric/settings
    start
else
    . /fabric/settings
    mount_root
fi
