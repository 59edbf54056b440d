// SPDX-License-Identifier: Apache-2.0
/* Private declarations of this room. */
#ifndef RAMET_ORCHESTRATOR_PEERS_INTERNAL_H
#define RAMET_ORCHESTRATOR_PEERS_INTERNAL_H

#include <openssl/ssl.h>

#include "base/list.h"
#include "orchestrator/peers/peers.h"
#include "orchestrator/ports/relay.h"

struct peers {
	struct loop *loop;
	const struct member *member;
	SSL_CTX *server, *client;
	struct list idle; /* connections that wait for their next request, the oldest first */
	size_t n_idle;
	uint64_t refused_logged_ms; /* when the log last named a refused certificate; 0: never */
};

/* --- peer-tls.c ----------------------------------------------------------------------------- */

/* Makes both contexts of `p`. A peer is accepted if its certificate is of the fleet's authority and
 * names a host of the table: for the client, the host that it wants to reach. */
int peer_tls_new(struct peers *p, const struct config *config, struct err *e);
void peer_tls_free(struct peers *p);

/* --- peer-link.c: connections to other hosts, as relay_link needs them ----------------------- */

/* Connects, or takes an idle connection. `safe`: what is sent is one head, and may be sent again if
 * an idle connection turns out to be closed. Like service_port_connect in all other respects. */
struct op *peer_link_connect(struct peers *p, struct service *c, const struct fleet_host *host,
			     const char *id, bool safe, const struct port_sink *sink, void *arg);
void peer_link_keep(struct op *op);
bool peer_link_send(struct op *op, const void *data, size_t len);
void peer_link_end(struct op *op);
void peer_link_redirect(struct op *op, const struct port_sink *sink, void *arg);

/* --- peer-idle.c: connections between two requests ------------------------------------------- */

/* Takes ownership of a connection to the host, which nobody reads. */
void peer_idle_put(struct peers *p, const struct fleet_host *host, h2o_socket_t *sock);
/* Returns a connection to the host that is not known to be closed; NULL: none. */
h2o_socket_t *peer_idle_take(struct peers *p, const struct fleet_host *host);
void peer_idle_free(struct peers *p);

/* Fills in the failure of a host that cannot be reached. */
void peer_unreachable(struct failure *f, const struct fleet_host *host, const char *id,
		      const char *reason);

#endif
