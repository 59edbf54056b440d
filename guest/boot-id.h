// SPDX-License-Identifier: Apache-2.0
/*
 * The kernel makes its boot_id once and lets nobody change it, but programs take it for the name of
 * this one run of this one machine. A file of ours is mounted over it, in the one place where it is
 * read.
 */
#ifndef RAMET_GUEST_BOOT_ID_H
#define RAMET_GUEST_BOOT_ID_H

#include "base/err.h"

#define BOOT_ID_PATH "/proc/sys/kernel/random/boot_id"
#define BOOT_ID_FILE "/run/boot_id"

/* Puts the kernel's own into `file` and mounts that over it. 0 or -errno. */
int boot_id_mount(const char *file, struct err *e);
/* Writes a random one. 0 or -errno: -EACCES when nothing is mounted there. */
int boot_id_renew(void);

#endif
