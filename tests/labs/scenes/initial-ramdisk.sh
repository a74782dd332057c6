#!/bin/sh
# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

# the node has an initial ramdisk with nouveau in it
# With a stand-in for update-initramfs: containers have no kernel and no initial ramdisk.
set -eu
cat > /usr/sbin/update-initramfs << 'END'
#!/bin/sh
cat /etc/modprobe.d/*.conf > "/boot/initrd.img-$(uname -r)"
END
chmod +x /usr/sbin/update-initramfs
mkdir -p /boot
echo nouveau > "/boot/initrd.img-$(uname -r)"
