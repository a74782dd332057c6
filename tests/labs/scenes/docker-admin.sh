#!/bin/sh
# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

# Docker has an admin's settings, and runs the admin's container admin-service
# The container has no restart policy, and Kubernetes does not know it.
set -eu
file=/etc/docker/daemon.json
image=docker.io/library/busybox:1.35
driver=$(sed -n 's/.*native.cgroupdriver=\([a-z]*\).*/\1/p' $file)
systemctl stop docker.socket docker.service
find /var/lib/docker -mindepth 1 -delete # the admin's data are elsewhere
sed "s/CGROUP_DRIVER/$driver/" daemon.json > $file
systemctl start docker.service
# The laboratory loads its images into an engine that has just started.
until docker image inspect $image > /dev/null 2>&1; do sleep 0.5; done
docker run --detach --name admin-service --entrypoint sleep $image 1000000
