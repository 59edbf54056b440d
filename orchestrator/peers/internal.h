// SPDX-License-Identifier: Apache-2.0
/* Private declarations of this room. */
#ifndef RAMET_ORCHESTRATOR_PEERS_INTERNAL_H
#define RAMET_ORCHESTRATOR_PEERS_INTERNAL_H

#include <openssl/ssl.h>

#include "base/list.h"
#include "orchestrator/fleet/place.h"
#include "orchestrator/peers/peers.h"
#include "orchestrator/ports/relay.h"
#include "orchestrator/sandbox/op.h"

#define PEERS_SILENT_MAX 64
#define PEERS_LOGGED_MAX 64
#define PEERS_REASON_MAX 400
struct peer_slots;

struct peers {
	struct loop *loop;
	const struct member *member;
	SSL_CTX *server, *client;
	struct list idle; /* connections that wait for their next request, the oldest first */
	size_t n_idle;
	struct place place; /* the hosts of this region that are not gone */
	unsigned version;   /* of that table */
	/* Hosts that did not answer a question for a list, and until when they are left alone; the
	 * oldest entry is replaced. */
	struct {
		uint32_t number;
		bool for_all; /* silent for all tenants; otherwise for one */
		uint64_t tenant, until_ms;
	} silent[PEERS_SILENT_MAX];
	size_t next_silent;
	struct peer_slots *slots;   /* allowances of tenants (peer-slots.h) */
	uint64_t refused_logged_ms; /* when the log last named a refused caller; 0: never */
	/* Why this host refused the certificate of the host that it connected to, in the handshake
	 * that ends next; empty: it did not. */
	char refusal[PEERS_REASON_MAX];
	/* Which hosts the log last named because a handshake failed, and a hash of the reason. */
	struct {
		uint32_t number;
		uint64_t reason, logged_ms; /* logged_ms 0: unused */
	} logged[PEERS_LOGGED_MAX];
};

/* --- peer-tls.c ----------------------------------------------------------------------------- */

/* Makes both contexts of `p`. A peer is accepted if its certificate is of the fleet's authority and
 * names a host of the table: for the client, the host that it wants to reach. */
int peer_tls_new(struct peers *p, const struct config *config, struct err *e);
void peer_tls_free(struct peers *p);
/* Logs that the handshake with the host has failed, with what an operator has to do: when it is
 * news, and else once a minute. `err` is that of h2o. */
void peer_tls_failed(struct peers *p, const struct fleet_host *host, const char *err);

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

/* Keeps a connection to the host, which nobody else may use, for the next request. Takes
 * ownership. */
void peer_idle_put(struct peers *p, const struct fleet_host *host, h2o_socket_t *sock);
/* Returns a connection to the host that is not known to be closed; NULL: none. */
h2o_socket_t *peer_idle_take(struct peers *p, const struct fleet_host *host);
void peer_idle_free(struct peers *p);

/* --- peer-call.c: requests whose whole answer is small -----------------------------------------
 */

struct peer_call;
/* `f`: why there is no answer (as of relay_link), or why the answer cannot be used. NULL: the
 * answer is in `call`, until the call is used again. */
typedef void peer_call_fn(struct peer_call *call, const struct failure *f);

/* A call, embedded in its owner, who zeroes it before the first use and ends it. */
struct peer_call {
	struct peers *peers;
	struct op *link; /* NULL: not under way */
	struct text ask, in, body;
	struct port_answer answer;
	bool connected, has_head;
	struct loop_timer limit;
	char host[FLEET_NAME_MAX + 1];
	peer_call_fn *done;
	void *arg;
};

struct peer_asked {
	const struct fleet_host *host;
	const char *what; /* completes "the host, which has" */
	struct text text; /* head and body, which become the call's */
	/* Time limit for the answer, if the request may be sent twice; 0: none, since the request
	 * may take long or change something. */
	uint32_t limit_ms;
};
/* Sends the request. `done` may start another call with the same struct, or free the struct. */
void peer_call_start(struct peers *p, struct peer_call *call, struct service *c,
		     const struct peer_asked *asked, peer_call_fn *done, void *arg);
void peer_call_end(struct peer_call *call);

/* --- peer-proxy.c --------------------------------------------------------------------------- */

/* Adds the head of the client's request to `out`, with more header fields, each of which ends with
 * CRLF. Returns false when it can't be passed on. */
bool peer_head(struct text *out, struct request *r, const char *fields);
/* Does what peer_head does, for a GET of another path on behalf of the same client. */
bool peer_head_get(struct text *out, struct request *r, const struct text *path);
/* Adds the answer's header fields to the answer for the client. */
void peer_add_headers(struct request *r, const struct port_answer *a);
/* Fills in the failure of a host whose answer is of no use. `why` continues "the answer of the
 * host"; NULL: the host gave no answer. */
void peer_failed(struct failure *f, const char *host, const char *why);

/* --- peer-place.c --------------------------------------------------------------------------- */

/* Asks a host for its load, which every answer of a host has, and the time limit for that
 * answer. */
#define PEER_ASK_LOAD "GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n"
#define PEER_LOAD_MS  1000
bool peer_read_load(struct place_load *load, const struct port_answer *a);
/* Notes the load that an answer of the host has. */
void peers_heard(struct peers *p, uint32_t number, const struct port_answer *answer);

#endif
