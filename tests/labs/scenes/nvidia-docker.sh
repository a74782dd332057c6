#!/bin/sh
# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

# leftovers of guides of 2016 and 2018: nvidia-docker v1 and nvidia-docker2
# With a driver volume, a container that uses it, and the repositories of both.
set -eu
install_package() { # install_package NAME VERSION
    mkdir -p "$1/DEBIAN"
    printf '%s\n' "Package: $1" "Version: $2" 'Architecture: all' 'Description: left over' \
        'Maintainer: example <example@example.org>' > "$1/DEBIAN/control"
    dpkg-deb --build "$1" > /dev/null
    dpkg --install "$1.deb"
}
mkdir -p nvidia-docker/lib/systemd/system nvidia-docker/usr/lib/nvidia-docker nvidia-docker/DEBIAN
cp plugin.py nvidia-docker/usr/lib/nvidia-docker
printf '[Service]\nExecStart=/usr/bin/python3 %s\n' /usr/lib/nvidia-docker/plugin.py \
    > nvidia-docker/lib/systemd/system/nvidia-docker.service
printf '#!/bin/sh\nsystemctl stop nvidia-docker\n' > nvidia-docker/DEBIAN/prerm
chmod 755 nvidia-docker/DEBIAN/prerm
install_package nvidia-docker 1.0.1-1
install_package nvidia-container-runtime 3.14.0-1
install_package nvidia-docker2 2.14.0-1
for list in nvidia-docker nvidia-container-runtime; do
    echo '# deb https://example.org/ /' > "/etc/apt/sources.list.d/$list.list"
done
systemctl daemon-reload
systemctl start nvidia-docker
docker volume create --driver nvidia-docker nvidia_driver_390.25
docker run --detach --name training-2018 --entrypoint sleep \
    --volume nvidia_driver_390.25:/usr/local/nvidia:ro docker.io/library/busybox:1.35 3600
