// SPDX-License-Identifier: Apache-2.0
/* A host's card: the value of its key in etcd, with which it tells the others about itself. */
#ifndef RAMET_ORCHESTRATOR_ETCD_CARD_H
#define RAMET_ORCHESTRATOR_ETCD_CARD_H

#include "base/err.h"
#include "orchestrator/fleet/table.h"
#include "orchestrator/json/text.h"

#define CARD_FORMAT   1
#define INSTANCE_TEXT 32

struct card {
	char fleet[FLEET_NAME_MAX + 1];
	/* Random, made when the machine joined: two machines never have the same, even if they were
	 * told to be the same host. */
	char instance[INSTANCE_TEXT + 1];
	struct fleet_host host;
};

/* Returns 0, or -errno with *e filled; -EPROTONOSUPPORT if its format is newer than this program.
 * Then its host is not read, apart from its number and name. */
int card_read(struct card *out, const char *text, size_t len, struct err *e);
void card_write(struct text *out, const struct card *card);
/* Adds the object of a host, as hosts.json has it. */
void host_write(struct text *out, const struct fleet_host *h);

#endif
