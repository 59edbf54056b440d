// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/api/fleet-prune.h"

#include <string.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/random.h"
#include "orchestrator/api/fleet-list.h"
#include "orchestrator/api/page-key.h"

#define PRUNE_MS (60 * 1000) /* time limit of a host's prune; after it no more hosts are asked */

struct fleet_prune {
	struct fleet_list list;
	struct fleet_round round;
	size_t n; /* ids in r->out */
	uint64_t bytes;
	void (*done)(struct request *r, uint64_t bytes);
};

static struct fleet_prune *prune_of(const struct request *r)
{
	return r->state;
}

static void free_prune(struct request *r)
{
	fleet_list_end(&prune_of(r)->list);
}

static const struct request_ops ops = {.free = free_prune};

static bool is_over_fleet(const struct request *r)
{
	return r->api->peers && !http_is_from_peer(r->req);
}

bool fleet_prune_is_here(struct request *r, const struct json_text *sandbox)
{
	const struct fleet_host *host;

	if (!is_over_fleet(r) || !sandbox->p ||
	    !peers_is_elsewhere(r->api->peers, sandbox->p, &host))
		return true;
	peers_send(r->api->peers, r, sandbox->p, host);
	return false;
}

/* --- questions ------------------------------------------------------------------------------ */

static void go_on(struct request *r)
{
	fleet_round_go_on(&prune_of(r)->list, &prune_of(r)->round);
}

static bool ask(struct request *r, const struct fleet_host *host)
{
	return peers_ask_same(r->api->peers, r, host, PRUNE_MS, go_on);
}

struct pruned {
	char **ids;
	uint64_t bytes;
};
static const struct json_field pruned_fields[] = {
	JSON_FIELD(struct pruned, ids, "checkpoints", JSON_LIST, .max = PAGE_MAX, .required = true),
	JSON_FIELD(struct pruned, bytes, "bytes", JSON_BIG, .max = (double)(1ll << 50),
		   .required = true),
};

static bool take(struct request *r, uint32_t number, const struct peers_part *part)
{
	struct fleet_prune *w = prune_of(r);
	struct pruned pruned = {0};
	struct err e;
	bool good = true;

	if (!part->len || json_read(part->body, part->len, pruned_fields, ARRAY_LEN(pruned_fields),
				    &pruned, &e) < 0)
		return false;
	for (char **id = pruned.ids; id && *id; id++)
		good &= id_valid(CHECKPOINT_ID_PREFIX, *id, strlen(*id));
	for (char **id = pruned.ids; good && id && *id; id++)
		text_printf(&r->out, "%s\"%s\"", w->n++ ? "," : "", *id);
	w->bytes += good ? pruned.bytes : 0;
	json_free(pruned_fields, ARRAY_LEN(pruned_fields), &pruned);
	return good;
}

static void over(struct request *r)
{
	request_leave_call(r);
	fleet_list_answer(&prune_of(r)->list);
	prune_of(r)->done(r, prune_of(r)->bytes);
}

/* --- start ---------------------------------------------------------------------------------- */

bool fleet_prune_asks(const struct request *r, const struct json_text *sandbox)
{
	return is_over_fleet(r) && !sandbox->p;
}

bool fleet_prune_begin(struct request *r)
{
	struct fleet_prune *w = r->state = must_alloc(sizeof(*w));

	r->ops = &ops;
	w->round =
		(struct fleet_round){.ask = ask, .take = take, .over = over, .limit_ms = PRUNE_MS};
	return fleet_list_begin(&w->list, r);
}

void fleet_prune(struct request *r, size_t n, uint64_t bytes,
		 void (*done)(struct request *r, uint64_t bytes))
{
	struct fleet_prune *w = prune_of(r);

	w->n = n;
	w->bytes = bytes;
	w->done = done;
	fleet_round_begin(&w->list, &w->round);
}
