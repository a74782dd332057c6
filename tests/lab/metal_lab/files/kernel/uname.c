/* SPDX-FileCopyrightText: metal.gpu contributors
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * uname(2) with the release of the simulated kernel. /etc/ld.so.preload names this library. Static
 * programs, such as the kubelet, see the release of the real kernel.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#define RELEASE "/run/metal-lab/kernel-release"

int uname(struct utsname *name)
{
    if (syscall(SYS_uname, name) != 0)
        return -1;
    int saved = errno;
    int file = open(RELEASE, O_RDONLY | O_CLOEXEC);
    if (file >= 0) {
        char text[sizeof name->release] = "";
        ssize_t length = read(file, text, sizeof text - 1);
        close(file);
        if (length > 0) {
            text[strcspn(text, "\n")] = '\0';
            memcpy(name->release, text, sizeof text);
        }
    }
    errno = saved;
    return 0;
}
