// SPDX-License-Identifier: Apache-2.0
/* Passes requests on to the host that has the sandbox or Space, which checks the key again. */
#include <string.h>

#include "base/alloc.h"
#include "orchestrator/fleet/member.h"
#include "orchestrator/peers/internal.h"
#include "orchestrator/peers/peer-ask.h"
#include "orchestrator/peers/peer-slots.h"
#include "orchestrator/service/service.h"

struct passing {
	struct relay relay;
	struct peers *peers;
	uint32_t number; /* of the host */
	char host[FLEET_NAME_MAX + 1];
};

static const struct passing *passing_of(const struct request *r)
{
	return r->state;
}

static const struct request_ops ops = {.free = relay_free};

/* --- the answer ----------------------------------------------------------------------------- */

/* Returns whether the client gets this field: not if it is about the connection to the other host,
 * or if h2o adds such a field by itself. */
static bool passes(const struct port_answer *a, const struct port_field *f)
{
	if (!port_is_value(f->value, f->value_len) ||
	    port_name_is(f->name, f->name_len, "content-length") ||
	    port_name_is(f->name, f->name_len, "ramet-load") ||
	    port_name_is(f->name, f->name_len, "date"))
		return false;
	/* A 426's field says which protocol the client must ask for. */
	if (a->status == 426 && port_name_is(f->name, f->name_len, "upgrade"))
		return true;
	return !port_is_hop(f->name, f->name_len, a->fields, a->n_fields);
}

void peer_add_headers(struct request *r, const struct port_answer *a)
{
	for (size_t i = 0; i < a->n_fields; i++) {
		const struct port_field *f = &a->fields[i];

		if (passes(a, f))
			relay_header(r, f->name, f->name_len, f->value, f->value_len);
	}
}

static void add_headers(struct request *r)
{
	const struct passing *state = passing_of(r);

	peers_heard(state->peers, state->number, &state->relay.answer);
	peer_add_headers(r, &state->relay.answer);
}

void peer_failed(struct failure *f, const char *host, const char *why)
{
	if (why)
		failure_set(f, FAIL_HOST_FAILED, 0, "the answer of host %s %s", host, why);
	else
		failure_set(f, FAIL_HOST_FAILED, 0,
			    "host %s closed the connection without an answer: whether it carried "
			    "out the request is not known",
			    host);
}

static void complain(const struct request *r, const char *why, struct failure *f)
{
	peer_failed(f, passing_of(r)->host, why);
}

static const struct relay_link peer_link = {
	.send = peer_link_send,
	.end = peer_link_end,
	.redirect = peer_link_redirect,
	.keep = peer_link_keep,
	.add_headers = add_headers,
	.complain = complain,
};

/* --- the request ---------------------------------------------------------------------------- */

static void take_path(struct port_ask *ask, const struct request *r)
{
	h2o_iovec_t path = r->req->input.path;
	size_t len;

	ask->path = path.base;
	ask->path_len = path.len;
	const char *authority = route_authority(path.base, path.len, &len);
	if (authority) {
		ask->authority = authority;
		ask->authority_len = len;
		ask->path = authority + len;
		ask->path_len -= (size_t)(ask->path - path.base);
	}
}

static bool write_head(struct text *out, struct request *r, struct port_ask ask, const char *fields)
{
	char client[INET6_ADDRSTRLEN];

	client_print(client, &r->from);
	ask.client = client;
	return peer_ask_write(out, &ask, fields);
}

bool peer_head(struct text *out, struct request *r, const char *fields)
{
	struct port_ask ask = {.body = PORT_BODY_LENGTH, .body_len = r->req->entity.len};

	relay_ask_head(r, &ask);
	take_path(&ask, r);
	return write_head(out, r, ask, fields);
}

bool peer_head_get(struct text *out, struct request *r, const struct text *path)
{
	struct port_ask ask = {.body = PORT_NO_BODY};

	relay_ask_head(r, &ask);
	take_path(&ask, r);
	ask.method = "GET";
	ask.method_len = 3;
	ask.path = path->p;
	ask.path_len = path->len;
	return write_head(out, r, ask, "");
}

void peers_serve(struct peers *p, struct request *r, const char *id, const struct fleet_host *host)
{
	if (!host) {
		answer_error(r, 404, "host_lost",
			     "the host that made %s was removed from the fleet", id);
		return;
	}
	struct passing *state = must_alloc(sizeof(*state));
	state->relay.link = &peer_link;
	state->peers = p;
	state->number = host->number;
	memcpy(state->host, host->name, sizeof(state->host));
	r->state = state;
	r->ops = &ops;
	struct port_ask ask = {0};
	relay_ask(r, &ask);
	take_path(&ask, r);
	if (!write_head(&state->relay.head, r, ask, "")) {
		answer_error(r, 400, "bad_path", "the method or path can't be passed on");
		return;
	}
	const bool safe = !route_changes(r->route) && relay_of(r)->body_over;
	request_ref(r);
	r->op = peer_link_connect(p, r->service, host, id, safe, &relay_sink, r);
}

bool peers_is_elsewhere(const struct peers *p, const char *id, const struct fleet_host **host)
{
	return fleet_is_elsewhere(member_table(p->member), member_keys(p->member), id, strlen(id),
				  host);
}

/* --- life cycle ----------------------------------------------------------------------------- */

/* Returns whether the address is that of a host of the table. */
static bool is_known(void *arg, const struct client *from)
{
	const struct peers *p = arg;
	const struct fleet_table *t = member_table(p->member);

	for (size_t i = 0; i < t->n; i++) {
		struct client at = client_of((const struct sockaddr *)&t->hosts[i].at);

		if (memcmp(&at, from, sizeof(at)) == 0)
			return true;
	}
	return false;
}

int peers_new(struct peers **out, struct loop *loop, struct http *http, struct service *service,
	      const struct config *config, struct err *e)
{
	struct peers *p = must_alloc(sizeof(*p));

	p->loop = loop;
	list_init(&p->idle);
	p->member = service_member(service);
	if (peer_tls_new(p, config, e) < 0 ||
	    http_listen_peers(http, config->fleet_listen, p->server, is_known, p, e) < 0) {
		peers_free(p);
		return e->code;
	}
	p->slots = peer_slots_new(p, service);
	*out = p;
	return 0;
}

void peers_free(struct peers *p)
{
	if (!p)
		return;
	peer_slots_free(p->slots);
	peer_idle_free(p);
	peer_tls_free(p);
	free(p->place.peers);
	free(p);
}
