// SPDX-License-Identifier: Apache-2.0
/*
 * Tiers: limits on what the sandboxes of a tenant may have. Each tier is a setting (tier_free, …)
 * whose value is a list of NAME=VALUE words; limits that the value leaves out keep their defaults.
 */
#ifndef RAMET_ORCHESTRATOR_CONFIG_TIERS_H
#define RAMET_ORCHESTRATOR_CONFIG_TIERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct tier {
	uint32_t ram_mib, rootfs_gb;
	uint32_t idle_s, lifetime_s;
	uint32_t concurrent;  /* sandboxes at one time, including children of forks */
	uint32_t disks_gb;    /* total size of their disks */
	uint32_t spaces_gb;   /* total size of the tenant's Spaces on the disk */
	uint32_t checkpoints; /* of the tenant, in memory and on the disk */
	bool persistent;      /* sandboxes may become Spaces at the idle timeout */
	bool private_memory;  /* VMs map a copy of their snapshot that only this tenant maps */
};

/* Applies one setting's value to *t; -EINVAL with a sentence that names the word and the range. */
int tier_parse(struct tier *t, const char *text, struct err *e);

/* The tiers of operators' keys. They have no setting and no limits, and may read the host's
 * metrics. The second one may also manage keys, and so get a key of each tenant: a program that
 * reads metrics needs only the first one. */
#define TIER_OPERATOR "operator"
#define TIER_ADMIN    "admin"
bool tier_is_operators(const char *name);
/* The defaults, as written in a configuration file. */
#define TIER_FREE                                                                                  \
	"ram_mib=1024 rootfs_gb=4 idle_s=300 lifetime_s=1800 concurrent=10 persistent=no "         \
	"disks_gb=40 spaces_gb=0 checkpoints=0 private_memory=no"
#define TIER_PRO                                                                                   \
	"ram_mib=4096 rootfs_gb=16 idle_s=1800 lifetime_s=28800 concurrent=50 persistent=yes "     \
	"disks_gb=200 spaces_gb=50 checkpoints=200 private_memory=no"
#define TIER_SCALE                                                                                 \
	"ram_mib=16384 rootfs_gb=64 idle_s=7200 lifetime_s=86400 concurrent=500 persistent=yes "   \
	"disks_gb=2000 spaces_gb=500 checkpoints=2000 private_memory=no"
#define TIER_ENTERPRISE                                                                            \
	"ram_mib=65536 rootfs_gb=512 idle_s=86400 lifetime_s=604800 concurrent=10000 "             \
	"persistent=yes disks_gb=40000 spaces_gb=5000 checkpoints=20000 private_memory=no"

#endif
