// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/api/handler.h"

void text_forked(struct text *t, const struct service_forked *forked)
{
	text_puts(t, "{\"children\":[");
	for (unsigned i = 0; i < forked->n; i++)
		text_printf(t, "%s\"%s\"", i ? "," : "", forked->ids[i]);
	text_printf(t, "],\"pause_us\":%llu,\"ready_us\":%llu,\"copied_bytes\":%llu}\n",
		    (unsigned long long)forked->pause_us, (unsigned long long)forked->ready_us,
		    (unsigned long long)forked->copied_bytes);
}

static void on_forked(void *arg, const struct service_forked *forked, const struct failure *f)
{
	struct request *r = arg;

	if (!request_called_well(r, f))
		return;
	for (unsigned i = 0; i < forked->n; i++)
		trace_child(r, forked->ids[i]);
	text_forked(&r->out, forked);
	answer(r, 200, "application/json");
}

bool fork_spec_read(struct request *r, const struct fork_body *b,
		    char labels[static LABELS_JSON_MAX], struct fork_spec *spec)
{
	*spec = (struct fork_spec){.n = b->n, .reseed = b->reseed, .labels = labels};
	return labels_read(r, b->labels, labels);
}

void serve_fork(struct request *r, const struct fork_body *b)
{
	struct fork_spec spec;
	char labels[LABELS_JSON_MAX];

	if (!fork_spec_read(r, b, labels, &spec))
		return;
	request_ref(r);
	r->op = service_fork(r->service, r->tenant, r->id, &spec, on_forked, r);
}

void serve_merge(struct request *r)
{
	if (strcmp(r->id, r->other) == 0) {
		answer_error(r, 400, "bad_request",
			     "a sandbox cannot be merged into itself: name two different ids");
		return;
	}
	request_ref(r);
	r->op = service_merge(r->service, r->tenant, r->id, r->other, request_done, r);
}
