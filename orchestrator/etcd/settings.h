// SPDX-License-Identifier: Apache-2.0
/* The settings of ramet-fleet, which `rametctl fleet join` writes. */
#ifndef RAMET_ORCHESTRATOR_ETCD_SETTINGS_H
#define RAMET_ORCHESTRATOR_ETCD_SETTINGS_H

#include "orchestrator/etcd/card.h"

#define SETTINGS_MAX	 65536 /* bytes of the file */
#define ETCD_MEMBERS_MAX 16

struct fleet_settings {
	uint32_t cell;
	struct card self; /* the version and `seen` are not in the file */
	char **etcd;	  /* NULL-terminated */
};

/* Returns 0, or -errno with *e filled. On success the caller frees with fleet_settings_free. */
int fleet_settings_read(struct fleet_settings *out, const char *text, size_t len, struct err *e);
/* Reads `dir`/fleet.json; as above. */
int fleet_settings_load(struct fleet_settings *out, const char *dir, struct err *e);
void fleet_settings_free(struct fleet_settings *s);

#endif
