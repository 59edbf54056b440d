// SPDX-License-Identifier: Apache-2.0
#include "guest/system/system.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/fd.h"
#include "guest/log-console.h"

#define WATCH_BYTES 1024 /* kernel memory of an inotify watch, with the inode that it holds */
#define WATCHES_MAX 1048576

static const struct {
	const char *name, *value;
} settings[] = {
	/* Every file watcher has one; editors and language servers have several. */
	{"fs/inotify/max_user_instances", "1024"},
	/* Mappings of a process: search engines and JVMs refuse to start with the default, 65,530.
	 */
	{"vm/max_map_count", "1048576"},
	/* Open files in all: limited by memory, and by each process's own limit. */
	{"fs/file-max", "9223372036854775807"},
	/* Connections that wait for accept(). */
	{"net/core/somaxconn", "4096"},
	/* Every user may ping, and serve on each port. */
	{"net/ipv4/ping_group_range", "0 2147483647"},
	{"net/ipv4/ip_unprivileged_port_start", "0"},
	/* No compaction ahead of need: its thread wakes an idle guest twice a second. */
	{"vm/compaction_proactiveness", "0"},
};

static void set(const char *root, const char *name, const char *value)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", root, name);
	write_or_log(path, value);
}

/* A quarter of the RAM. The kernel's default is a hundredth, which is 8,192 watches in 1 GiB. */
static uint64_t inotify_watches(uint64_t ram_bytes)
{
	uint64_t fit = ram_bytes / 4 / WATCH_BYTES;

	return fit < WATCHES_MAX ? fit : WATCHES_MAX;
}

void sysctl_set_all(const char *root, uint64_t ram_bytes)
{
	char watches[24];

	snprintf(watches, sizeof(watches), "%" PRIu64, inotify_watches(ram_bytes));
	set(root, "fs/inotify/max_user_watches", watches);
	for (size_t i = 0; i < ARRAY_LEN(settings); i++)
		set(root, settings[i].name, settings[i].value);
}
