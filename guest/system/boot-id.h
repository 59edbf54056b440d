// SPDX-License-Identifier: Apache-2.0
/*
 * The kernel generates its boot_id once and nobody can change it, but programs use it to identify
 * one run of one machine. A copy of a guest needs another one, so a file is mounted over it.
 */
#ifndef RAMET_GUEST_SYSTEM_BOOT_ID_H
#define RAMET_GUEST_SYSTEM_BOOT_ID_H

#include "base/err.h"

#define BOOT_ID_PATH "/proc/sys/kernel/random/boot_id"
#define BOOT_ID_FILE "/run/boot_id"

/* Writes the kernel's boot_id to `file` and mounts that over it. Returns 0 or -errno. */
int boot_id_mount(const char *file, struct err *e);
/* Replaces it by a random one. Returns 0 or -errno: -EACCES when no file is mounted there. */
int boot_id_renew(void);

#endif
