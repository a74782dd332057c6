#!/bin/sh
# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

# a second, older kernel, and initial ramdisks that dracut has built for both
# With a stand-in for dracut, and text files for kernels: containers have none. It does what
# tests/recorded/ramdisk.yml says, and writes down how it was called.
set -eu
cat > /usr/bin/dracut << 'END'
#!/bin/sh
set -eu
echo "$*" >> /run/dracut.log
case "$*" in
"--regenerate-all --force")
    for list in /lib/modules/*/modules.dep; do
        folder=${list%/modules.dep}
        "$0" "--kver=${folder##*/}" --force
    done
    ;;
--kver=*" --force")
    find /etc/modprobe.d /usr/lib/modprobe.d -name '*.conf' -exec cat {} + > "/boot/initramfs-${1#--kver=}.img"
    ;;
*)
    echo "the stand-in for dracut does not know: $*" >&2
    exit 1
    ;;
esac
END
chmod +x /usr/bin/dracut
mkdir -p /boot /etc/modprobe.d /usr/lib/modprobe.d
for release in "$(uname -r)" 5.14.0-503.40.1.el9_5.x86_64; do
    mkdir -p "/lib/modules/$release"
    echo kernel/fs/ext4/ext4.ko: > "/lib/modules/$release/modules.dep"
    echo "stand-in for a kernel" > "/boot/vmlinuz-$release"
done
dracut --regenerate-all --force
rm /run/dracut.log
