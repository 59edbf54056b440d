// SPDX-License-Identifier: Apache-2.0
/* A host's card: the value of the host's key in etcd, which describes the host to the others. */
#ifndef RAMET_ORCHESTRATOR_ETCD_CARD_H
#define RAMET_ORCHESTRATOR_ETCD_CARD_H

#include "base/err.h"
#include "orchestrator/fleet/table.h"
#include "orchestrator/json/text.h"

#define CARD_FORMAT   1
#define INSTANCE_TEXT 32

struct card {
	char fleet[FLEET_NAME_MAX + 1];
	/* Random, made when the machine joined. Two machines never have the same value, even if
	 * both were set up as the same host. */
	char instance[INSTANCE_TEXT + 1];
	struct fleet_host host;
};

/* Returns 0, or -errno with *e filled; -EPROTONOSUPPORT if the card's format is newer than this
 * program. Then only the host's number and name are read. */
int card_read(struct card *out, const char *text, size_t len, struct err *e);
void card_write(struct text *out, const struct card *card);
/* Adds the host as a JSON object, in the form that hosts.json uses. */
void host_write(struct text *out, const struct fleet_host *h);

#endif
