// SPDX-License-Identifier: Apache-2.0
/* Answers to requests with an Idempotency-Key that previous instances of the service have served:
 * the service has the ids of what was made, from which the answers are written again. */
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fd.h"
#include "orchestrator/api/internal.h"
#include "orchestrator/http/dispatch.h"
#include "orchestrator/store/store.h"

_Static_assert(REQUEST_HASH_LEN == IDEM_HASH_LEN, "the service gets the hashes as they are");

static void add_sandbox(struct text *out, struct api *a, const struct store_answer *made)
{
	struct sandbox_view view;
	struct failure f;

	/* The answer is the same as before if the sandbox has ended since. */
	if (!service_view(a->service, made->tenant, made->ids, &view, &f))
		view = (struct sandbox_view){.state = "ready"};
	text_created(out, a->config, made->ids, view.state);
}

static void add_children(struct text *out, const struct store_answer *made)
{
	scoped_free const char **ids = must_alloc(FORK_MAX * sizeof(*ids));
	scoped_free char *copy = must_alloc(strlen(made->ids) + 1);
	struct service_forked forked = {.ids = ids,
					.pause_us = made->pause_us,
					.ready_us = made->ready_us,
					.copied_bytes = made->copied_bytes};
	char *rest = strcpy(copy, made->ids), *id;

	while (forked.n < FORK_MAX && (id = strsep(&rest, " ")))
		ids[forked.n++] = id;
	text_forked(out, &forked);
}

/* Adds the same answer as when the sandboxes were made, except for the reasons of failures, which
 * are not kept. */
static void add_starts(struct text *out, const struct store_answer *made)
{
	scoped_free const char **ids = must_alloc(FORK_MAX * sizeof(*ids));
	scoped_free const char **errors = must_alloc(FORK_MAX * sizeof(*errors));
	scoped_free char *copy = must_copy(made->ids);
	struct service_forked forked = {.ids = ids, .errors = errors, .ready_us = made->ready_us};
	char *rest = copy, *id;

	for (; forked.n < FORK_MAX && (id = strsep(&rest, " ")); forked.n++) {
		ids[forked.n] = strcmp(id, "-") ? id : NULL;
		errors[forked.n] = ids[forked.n] ? NULL : "it could not be started";
	}
	text_started(out, &forked);
}

/* Returns the status: 404 when the checkpoint is gone. */
static int add_checkpoint(struct text *out, struct api *a, const struct store_answer *made)
{
	struct checkpoint_view view;
	struct failure f;

	if (!service_checkpoint_view(a->service, made->tenant, made->ids, &view, &f))
		return 404;
	text_checkpoint(out, &view);
	return 201;
}

static void restore(void *arg, const struct store_answer *made)
{
	struct api *a = arg;
	int64_t age_ms = realtime_ms() - made->answered_at_ms;
	struct text body = {0};
	int status = 200;

	if (made->kind == MADE_SANDBOX) {
		status = 201;
		add_sandbox(&body, a, made);
	} else if (made->kind == MADE_CHILDREN) {
		add_children(&body, made);
	} else if (made->kind == MADE_STARTS) {
		add_starts(&body, made);
	} else if (made->kind == MADE_CHECKPOINT) {
		status = add_checkpoint(&body, a, made);
	} else {
		text_frozen(&body, made->ids);
	}
	if (status == 404) /* the checkpoint is gone: the request is made again */
		return;
	if (age_ms < 0) /* the wall clock may go back */
		age_ms = 0;
	idem_restore(keyed_answers(a->http), made->tenant, made->key, made->asks, status, body.p,
		     body.len, loop_now_ms(a->loop) - (uint64_t)age_ms);
	text_free(&body);
}

static void forgotten(void *arg, const uint8_t key[static IDEM_HASH_LEN])
{
	struct api *a = arg;

	service_key_forget(a->service, key);
}

int made_before_load(struct api *a, struct err *e)
{
	struct idem *answers = keyed_answers(a->http);
	int ret = service_requests_made(a->service, IDEM_KEPT_MS, restore, a, e);

	answers->forgotten = forgotten;
	answers->arg = a;
	return ret;
}
