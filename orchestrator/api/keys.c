// SPDX-License-Identifier: Apache-2.0
/*
 * API keys, for admins. Without keys there are no admins: rametctl makes the first key. A request
 * cannot end its own key: nobody could read the answer, and the last admin would be locked out.
 */
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "orchestrator/api/handler.h"
#include "orchestrator/api/page-key.h"
#include "orchestrator/store/keys.h"

/* --- one key -------------------------------------------------------------------------------- */

/* Adds the members of a key, and the opening brace. */
static void add_key(struct text *t, const struct key *key, const struct request *r)
{
	text_printf(t, "{\"id\":\"%s\"", key->id);
	json_member(t, "tenant", key->tenant);
	json_member(t, "name", key->name);
	json_member(t, "tier", key->tier);
	json_member(t, "state", key_state(key));
	json_member_time(t, "created_at", key->created_at_ms);
	json_member_time(t, "ends_at", key->revoked_at_ms);
	json_member_bool(t, "current", key == r->key);
}

/* `missing`: the error's code for -ENOENT. */
static void refuse(struct request *r, const struct err *e, const char *missing)
{
	if (e->code == -EINVAL) {
		answer_error(r, 400, "bad_request", "%s", e->text);
	} else if (e->code == -ENOENT) {
		answer_error(r, 404, missing, "%s", e->text);
	} else if (e->code == -EKEYREVOKED) {
		answer_error(r, 409, "key_ended", "%s", e->text);
	} else {
		struct failure f;

		failure_set(&f, FAIL_CATALOGUE, 5, "%s", e->text);
		answer_failure(r, &f);
	}
}

/* Returns false, with an answer given, for the key of the request itself. */
static bool is_other(struct request *r, const char *what)
{
	if (strcmp(r->key->id, r->id) != 0)
		return true;
	answer_error(r, 409, "own_key",
		     "the request uses the key %s, which cannot %s itself: use another admin's "
		     "key, or rametctl",
		     r->id, what);
	return false;
}

/* --- list ----------------------------------------------------------------------------------- */

/* Reads ?cursor= to *previous, the last key of the page before. Returns false, with an answer
 * given, when it is invalid. */
static bool ask_previous(struct request *r, const struct key **previous)
{
	char id[KEY_ID_LEN + 1] = "";
	int len = ask_cursor(r, 'k', id, 1, KEY_ID_LEN);

	*previous = len > 0 ? keys_find(service_keys(r->service), id) : NULL;
	if (len > 0 && !*previous)
		answer_error(r, 400, "bad_request",
			     "cursor names no key: use the whole value of the header "
			     "ramet-next-cursor");
	return len == 0 || (len > 0 && *previous);
}

void serve_keys(struct request *r)
{
	const struct keys *keys = service_keys(r->service);
	const struct key *last, *key;
	size_t limit = PAGE_MAX;

	if (!ask_limit(r, &limit) || !ask_previous(r, &last) || !answer_may_be_long(r))
		return;
	while (limit-- && (key = keys_next(keys, last))) {
		text_putc(&r->out, r->out.len ? ',' : '[');
		add_key(&r->out, key, r);
		text_putc(&r->out, '}');
		last = key;
	}
	if (keys_next(keys, last))
		answer_next(r, 'k', last->id, KEY_ID_LEN);
	text_puts(&r->out, r->out.len ? "]\n" : "[]\n");
	answer(r, 200, "application/json");
}

/* --- changes -------------------------------------------------------------------------------- */

/* Answers when the change is on the disk. */
static void when_synced(struct request *r, service_done_fn *fn)
{
	request_ref(r);
	r->op = service_sync(r->service, fn, r);
}

static void on_made(void *arg, const struct failure *f)
{
	struct request *r = arg;

	if (!request_called_well(r, f))
		return;
	answer_header(r, "cache-control", "no-store");
	answer(r, 201, "application/json");
}

/* Answers with a new key, and erases `text`. */
static void answer_made(struct request *r, const struct key *key,
			char text[static KEY_TEXT_LEN + 1])
{
	add_key(&r->out, key, r);
	json_member(&r->out, "key", text);
	text_puts(&r->out, "}\n");
	explicit_bzero(text, KEY_TEXT_LEN + 1);
	when_synced(r, on_made);
}

void serve_key_create(struct request *r, const struct key_create_body *b)
{
	char text[KEY_TEXT_LEN + 1];
	const struct key *key;
	struct err e;

	if (tier_check(r->config, b->tier.p, &e) < 0 ||
	    keys_create(service_keys(r->service), b->name.p, b->tier.p, b->tenant.p, text, &key,
			&e) < 0) {
		refuse(r, &e, "no_such_tenant");
		return;
	}
	log_info("key %s made with key %s: tenant %s, tier %s", key->id, r->key->id, key->tenant,
		 key->tier);
	answer_made(r, key, text);
}

void serve_key_rotate(struct request *r, const struct key_rotate_body *b)
{
	char text[KEY_TEXT_LEN + 1];
	const struct key *key;
	struct err e;

	if (!b->grace_seconds && !is_other(r, "revoke"))
		return;
	if (keys_rotate(service_keys(r->service), r->id, b->grace_seconds, text, &key, &e) < 0) {
		refuse(r, &e, "no_such_key");
		return;
	}
	log_info("key %s, made with key %s, replaces %s", key->id, r->key->id, r->id);
	answer_made(r, key, text);
}

void serve_key_change(struct request *r, const struct key_change_body *b)
{
	struct keys *keys = service_keys(r->service);
	struct err e;

	if (!is_other(r, "change"))
		return;
	if (tier_check(r->config, b->tier.p, &e) < 0 ||
	    keys_set_tier(keys, r->id, b->tier.p, &e) < 0) {
		refuse(r, &e, "no_such_key");
		return;
	}
	log_info("key %s: tier %s, set with key %s", r->id, b->tier.p, r->key->id);
	add_key(&r->out, keys_find(keys, r->id), r);
	text_puts(&r->out, "}\n");
	when_synced(r, request_done_200);
}

void serve_key_revoke(struct request *r)
{
	struct err e;

	if (!is_other(r, "revoke"))
		return;
	if (keys_revoke(service_keys(r->service), r->id, &e) < 0) {
		refuse(r, &e, "no_such_key");
		return;
	}
	log_info("key %s revoked with key %s", r->id, r->key->id);
	when_synced(r, request_done);
}
