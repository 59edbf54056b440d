// SPDX-License-Identifier: Apache-2.0
/*
 * Passes requests on to the host of the fleet that has the sandbox or Space, and takes such
 * requests from other hosts. Exists only on hosts of a fleet.
 */
#ifndef RAMET_ORCHESTRATOR_PEERS_PEERS_H
#define RAMET_ORCHESTRATOR_PEERS_PEERS_H

#include "base/err.h"
#include "orchestrator/fleet/route.h"
#include "orchestrator/http/dispatch.h"

struct member;
struct peers;

/* Reads the certificates and listens for other hosts. Returns 0, or -errno with *e filled. All that
 * it gets must outlive it. */
int peers_new(struct peers **out, struct loop *loop, struct http *http, const struct member *member,
	      const struct config *config, struct err *e);
/* NULL is fine. Called after http_free. */
void peers_free(struct peers *p);

/* Finds the host that serves requests for an id. */
enum fleet_route peers_route(const struct peers *p, const char *id, const struct fleet_host **host);
/* Serves a request for the id by passing it on to `host`, which is another one; NULL: a host that
 * is not in the table. */
void peers_serve(struct peers *p, struct request *r, const char *id, const struct fleet_host *host);

#endif
