/* SPDX-FileCopyrightText: metal.gpu contributors
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * What holds a pod's namespaces: it waits, reaps what it inherits, and leaves when asked to. */

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void leave(int number) { (void)number; _exit(0); }

static void reap(int number) {
  (void)number;
  while (waitpid(-1, NULL, WNOHANG) > 0) {
  }
}

int main(void) {
  signal(SIGINT, leave);
  signal(SIGTERM, leave);
  signal(SIGCHLD, reap);
  for (;;) pause();
}
