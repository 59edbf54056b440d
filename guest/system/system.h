// SPDX-License-Identifier: Apache-2.0
/* Changes to the guest as a whole: identity, clock, connections, limits, size of its disk. */
#ifndef RAMET_GUEST_SYSTEM_SYSTEM_H
#define RAMET_GUEST_SYSTEM_SYSTEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "guest/frame.h"

/* Each returns 0 or -errno; the two clocks return ns since 1970. A table, so that tests change
 * nothing on the machine they run on and can make each step fail. */
struct system_ops {
	/* Credits the bytes and reseeds the CRNG. */
	int (*add_entropy)(const void *bytes, size_t len);
	int64_t (*realtime_ns)(void);
	int64_t (*host_realtime_ns)(void); /* -errno where the kernel does not know it */
	int (*set_realtime)(int64_t ns);
	int (*set_hostname)(const char *name);
	int (*renew_boot_id)(void);
	int (*reset_tcp)(void); /* to the outside; logs what fails */
	/* Tells the VMM that this guest is unique. The first call announces that every copy will do
	 * so. */
	int (*confirm_unique)(void);
	int (*grow_root)(uint64_t bytes, struct err *e);
};

extern const struct system_ops system_real;
extern const struct system_ops system_dry; /* only logs what it would do */

/*
 * Makes a restored guest unique: entropy, boot id, clock (stepped only when it is off by more than
 * a millisecond), host name; ends the TCP connections of the original. Then opens the network. The
 * driver reseeds Python's generators. Returns 0 or -errno; the error names the step that failed,
 * and the steps before it are done.
 */
int reseed_apply(const struct reseed_request *r, const struct system_ops *sys, struct err *e);

/*
 * The kernel generates its boot_id once and nobody can change it, but programs use it to identify
 * one run of one machine. A copy of a guest needs a boot_id of its own, so a file is mounted over
 * the kernel's.
 */
#define BOOT_ID_PATH "/proc/sys/kernel/random/boot_id"
#define BOOT_ID_FILE "/run/boot_id"

/* Writes the kernel's boot_id to `file`, and mounts `file` over BOOT_ID_PATH. Returns 0 or
 * -errno. */
int boot_id_mount(const char *file, struct err *e);
/* Replaces the mounted boot_id by a random one. Returns 0 or -errno: -EACCES when no file is
 * mounted at BOOT_ID_PATH. */
int boot_id_renew(void);

/*
 * Grows the root file system (ext4) to the size of its disk. Waits up to 5 s until the kernel sees
 * that the disk has `bytes` (-ETIMEDOUT). Returns 0 or -errno; 0 also when there is nothing to do.
 */
int grow_root(uint64_t bytes, struct err *e);

/* Sets limits of the kernel that are too low for development, for a guest with this much RAM.
 * `root` is "/proc/sys". */
void sysctl_set_all(const char *root, uint64_t ram_bytes);

/*
 * Ends the TCP sockets whose peer is reached through the interface `link` or is unreachable: their
 * owners see ECONNABORTED at once. Connections within the guest and listeners stay. Connections of
 * other network namespaces (containers) are left to the host, which resets those it does not know.
 * Needs the kernel's INET_DIAG_DESTROY. Returns the number of ended sockets or -errno.
 */
int tcp_reset(const char *link);

/*
 * Waits until `is_there(arg)` returns true; calls it at once and after each event of a device, and
 * does not poll. Returns false after `ms` milliseconds.
 */
bool uevent_wait(bool (*is_there)(const void *arg), const void *arg, int ms);

#endif
