// SPDX-License-Identifier: Apache-2.0
/*
 * Passes requests on to the host of the fleet that has the sandbox or Space, and takes such
 * requests from other hosts. Exists only on hosts of a fleet.
 */
#ifndef RAMET_ORCHESTRATOR_PEERS_PEERS_H
#define RAMET_ORCHESTRATOR_PEERS_PEERS_H

#include "base/err.h"
#include "orchestrator/fleet/table.h"
#include "orchestrator/http/dispatch.h"
#include "orchestrator/json/cursor.h"

struct peers;
struct port_answer;

/* Reads the certificates and listens for other hosts. Returns 0, or -errno with *e filled. All
 * arguments must outlive *out. */
int peers_new(struct peers **out, struct loop *loop, struct http *http, struct service *service,
	      const struct config *config, struct err *e);
/* Returns what member_new and peers_new would return for the files of the fleet. */
int peers_check(const struct config *config, struct err *e);
/* NULL is fine. Called after http_free. */
void peers_free(struct peers *p);

/* Returns whether another host serves requests for an id, with *host as fleet_is_elsewhere sets
 * it. */
bool peers_is_elsewhere(const struct peers *p, const char *id, const struct fleet_host **host);
/* Serves a request for the id by passing it on to `host`, which is not this host; NULL: a host that
 * is not in the table. */
void peers_serve(struct peers *p, struct request *r, const char *id, const struct fleet_host *host);

/* --- lists (peer-part.c) ---------------------------------------------------------------------- */

#define PEERS_PARTS 16 /* hosts that are asked at a time */

/* A part of a list, as another host has answered. It is input. */
struct peers_part {
	const char *body;
	size_t len;
	size_t limit;			/* entries that were asked for */
	char next[CURSOR_TEXT_MAX + 1]; /* cursor of the rest; empty: there is none */
};
/* Asks the host for the part at `path` on behalf of r's client, whose key the host checks. The host
 * has one second to answer. `fn` is called after each answer, until r->op is left. Returns false
 * when the client's query can't be passed on, or when too many hosts are asked. */
bool peers_ask(struct peers *p, struct request *r, const struct fleet_host *host,
	       const struct text *path, size_t limit, void (*fn)(struct request *r));
/* Does the same with r's own path and body, and a time limit: the host performs the request, too.
 * It must be one that may be performed twice. */
bool peers_ask_same(struct peers *p, struct request *r, const struct fleet_host *host,
		    uint32_t limit_ms, void (*fn)(struct request *r));
bool peers_is_asked(const struct request *r, uint32_t number);
/* Returns false while the host's answer is missing. Otherwise sets *part, which is valid until it
 * is forgotten; NULL: the host was not asked, or has given no answer of use. */
bool peers_part(const struct request *r, uint32_t number, const struct peers_part **part);
void peers_forget(const struct request *r, uint32_t number);

/* Returns whether the host was asked a moment ago and did not answer, either for any tenant or for
 * r's. */
bool peers_is_silent(const struct peers *p, const struct request *r, uint32_t number);

/* --- loads (peer-loads.c) --------------------------------------------------------------------- */

/* Asks all hosts of the table how full they are. Reports a line for each that has answered within a
 * second: its number, how many sandboxes it has, and its free memory in MiB. */
struct op *peers_loads(struct peers *p, struct service *c,
		       void (*fn)(void *arg, const char *text, const struct failure *f), void *arg);

/* --- creates (peer-place.c) ------------------------------------------------------------------ */

/* Creates with longer bodies are not sent to other hosts, since their bytes are kept. */
#define PEERS_BODY_MAX (1u << 20)

struct peers_create {
	const char *tenant;
	uint32_t kind, cap; /* service_kind, service_cap */
	/* Only asks for the answer to an earlier request with its Idempotency-Key. */
	bool only_asks;
	/* Makes the sandbox on this host. */
	void (*here)(struct request *r);
};
/* Finds the host that makes the sandbox which `r` asks for. Returns true if it is this host.
 * Otherwise `r` is answered later with another host's answer, or what->here is called. */
bool peers_place(struct peers *p, struct request *r, const struct peers_create *what);
/* Sends a create to the one host that can make the sandbox, since it has `id`; NULL: as in
 * peers_serve. */
void peers_send(struct peers *p, struct request *r, const char *id, const struct fleet_host *host);
/* Returns the host that finds out whether this create has been made with its Idempotency-Key, and
 * otherwise decides where it is made. NULL: this host does, as always for a first attempt. */
const struct fleet_host *peers_key_host(struct peers *p, const h2o_req_t *req);

/* --- limits of tenants (peer-slots.c) -------------------------------------------------------- */

/* A limit of the tenant is reached on this host (failure.lacks). Returns whether its keeper is
 * asked for more; then `again` is called, or the request is refused. */
bool peers_capped(struct request *r, const struct failure *f, void (*again)(struct request *r));
/* Serves a request on allowances that another host makes for itself. Returns false if `r` is no
 * such request. */
bool peers_slots_serve(struct peers *p, struct request *r);

#endif
