// SPDX-License-Identifier: Apache-2.0
/*
 * Tiers: the most that sandboxes of a tenant may have. A setting each (tier_free, …), whose value
 * is words NAME=NUMBER; what a value does not name is as in the default.
 */
#ifndef RAMET_ORCHESTRATOR_CONFIG_TIERS_H
#define RAMET_ORCHESTRATOR_CONFIG_TIERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "orchestrator/config/config.h"

struct tier {
	uint32_t ram_mib, rootfs_gb;
	uint32_t idle_s, lifetime_s;
	uint32_t concurrent; /* living sandboxes, children of forks too */
	uint32_t disks_gb;   /* the sizes of their disks together */
	uint32_t spaces_gb;  /* that all Spaces of the tenant may take on the disk */
	bool persistent;     /* Spaces at the idle timeout */
	bool private_memory; /* VMs map a copy of their image that no other tenant's map */
};

/* Applies one setting's value to *t; -EINVAL with a sentence that names the word and the range. */
int tier_parse(struct tier *t, const char *text, struct err *e);

/* The tier called `name` as configured. False: there is none of that name. */
bool tier_find(struct tier *out, const struct config *c, const char *name);
/* The i-th; false: there are no more. */
bool tier_at(struct tier *out, const struct config *c, size_t i);
/* The tier of operators' keys, which no setting has: no limits, and the figures of the host. */
#define TIER_OPERATOR "operator"
/* For sentences: "free, pro, scale or enterprise". */
extern const char tier_names[];

/* As one would write them. */
#define TIER_FREE                                                                                  \
	"ram_mib=1024 rootfs_gb=4 idle_s=300 lifetime_s=1800 concurrent=10 persistent=no "         \
	"disks_gb=40 spaces_gb=0 private_memory=no"
#define TIER_PRO                                                                                   \
	"ram_mib=4096 rootfs_gb=16 idle_s=1800 lifetime_s=28800 concurrent=50 persistent=yes "     \
	"disks_gb=200 spaces_gb=50 private_memory=no"
#define TIER_SCALE                                                                                 \
	"ram_mib=16384 rootfs_gb=64 idle_s=7200 lifetime_s=86400 concurrent=500 persistent=yes "   \
	"disks_gb=2000 spaces_gb=500 private_memory=no"
#define TIER_ENTERPRISE                                                                            \
	"ram_mib=65536 rootfs_gb=512 idle_s=86400 lifetime_s=604800 concurrent=10000 "             \
	"persistent=yes disks_gb=40000 spaces_gb=5000 private_memory=no"

#endif
