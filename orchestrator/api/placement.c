// SPDX-License-Identifier: Apache-2.0
/* Decides on which host of the fleet a create makes its sandbox. */
#include "orchestrator/api/internal.h"
#include "orchestrator/api/placement.h"
#include "orchestrator/fleet/load.h"
#include "orchestrator/http/dispatch.h"
#include "orchestrator/peers/peers.h"

bool placement_is_create(const struct route *route)
{
	return route && route->body == &create_json;
}

/* Returns what another host says when it has chosen this one; NULL: this host is to choose. */
static const h2o_iovec_t *chosen_as(const struct request *r)
{
	return http_is_from_peer(r->req) ? request_header(r, "ramet-warm") : NULL;
}

/* --- hosts that were chosen ----------------------------------------------------------------- */

static bool refuse(struct request *r, enum failure_code code, unsigned retry_after,
		   const char *sentence)
{
	struct failure f;

	failure_set(&f, code, retry_after, "%s", sentence);
	answer_failure(r, &f);
	return false;
}

/* Returns false, with an answer given, when this host does not make the sandbox. */
static bool admits(struct request *r, const struct create_body *b, struct sandbox_spec *spec)
{
	const h2o_iovec_t *as = chosen_as(r);
	struct place_load load;

	if (b->checkpoint.p) /* no other host has the checkpoint */
		return true;
	service_load(r->service, &load);
	spec->warm_only = h2o_memis(as->base, as->len, H2O_STRLIT("only"));
	switch (place_admit(&load, service_kind(r->service, r->tenant, &spec->config),
			    spec->warm_only)) {
	case PLACE_OK:
		return true;
	case PLACE_NO_WARM:
		return refuse(r, FAIL_NO_WARM, 0, "no warm sandbox of this kind is ready");
	case PLACE_NO_ROOM:
		return refuse(r, FAIL_NO_CAPACITY, 10, "the rest of this host's room is for forks");
	default:
		return refuse(r, FAIL_HOST_CLOSED, 10,
			      "this host makes no sandboxes now: it is draining, or the last ones "
			      "failed");
	}
}

/* --- hosts that choose ---------------------------------------------------------------------- */

/* Serves the request again, to make the sandbox on this host; the body is valid. */
static void make_here(struct request *r)
{
	r->mark = true;
	route_serve(r);
}

static bool is_on_this_host(struct request *r, const struct create_body *b)
{
	const struct fleet_host *host;

	if (!peers_is_elsewhere(r->api->peers, b->checkpoint.p, &host))
		return true;
	peers_send(r->api->peers, r, b->checkpoint.p, host);
	return false;
}

bool placement_is_here(struct request *r, const struct create_body *b, struct sandbox_spec *spec)
{
	struct peers_create what = {.tenant = r->tenant, .here = make_here};

	if (!r->api->peers || r->mark)
		return true;
	if (chosen_as(r))
		return admits(r, b, spec);
	if (r->req->entity.len > PEERS_BODY_MAX)
		return true;
	if (b->checkpoint.p)
		return is_on_this_host(r, b);
	what.kind = service_kind(r->service, r->tenant, &spec->config);
	what.cap = service_cap(r->service, r->tenant);
	return peers_place(r->api->peers, r, &what);
}

bool placement_asks_others(struct request *r)
{
	const struct peers_create what = {.tenant = r->tenant, .only_asks = true};

	if (!r->api->peers || !placement_is_create(r->route) || chosen_as(r))
		return false;
	peers_place(r->api->peers, r, &what);
	request_began(r);
	return true;
}

void placement_add_load(struct request *r)
{
	struct place_load load;
	char text[LOAD_TEXT_MAX];

	service_load(r->service, &load);
	load_print(text, &load);
	answer_header(r, "ramet-load", text);
}
