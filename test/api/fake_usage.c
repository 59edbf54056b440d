// SPDX-License-Identifier: Apache-2.0
/* Usage in the fake core: a sample every 10 s in the last hour, whose CPU time in seconds is its
 * number. */
#include "orchestrator/usage/usage.h"
#include "test/api/fake_call.h"

#define NOW_MS 1700003600000 /* 2023-11-14T23:13:20Z */

static struct usage_sample sample(unsigned i)
{
	return (struct usage_sample){.at_ms = NOW_MS - (int64_t)(USAGE_KEPT - i) * USAGE_STEP_MS,
				     .cpu_ms = i * 1000,
				     .memory_bytes = 1u << 20,
				     .disk_bytes = 4096,
				     .net_in_bytes = 7,
				     .net_out_bytes = UINT64_C(1) << 53,
				     .cpu = i ? i : USAGE_CPU_NONE};
}

static void usage_failed(struct core_call *call)
{
	call->usage_fn(call->arg, NULL, &call->failure);
}

static void usage_run(struct core_call *call)
{
	const struct usage_query *q = &call->usage_query;
	struct usage_sample samples[USAGE_KEPT];
	struct usage_view view = {.size = {2, 512, 4}, .now = sample(USAGE_KEPT)};

	for (unsigned i = 0; i < USAGE_KEPT; i++) {
		int64_t at_ms = sample(i).at_ms;

		if ((!q->since_ms || at_ms >= q->since_ms) &&
		    (!q->until_ms || at_ms <= q->until_ms))
			samples[view.n++] = sample(i);
	}
	view.samples = view.n > q->most ? samples + view.n - q->most : samples;
	view.n = view.n > q->most ? q->most : view.n;
	view.now.cpu_ms = 360001;
	view.now.cpu = 12345;
	call->usage_fn(call->arg, &view, NULL);
	call_free(call);
}

struct core_call *core_usage(struct core *c, const char *tenant, const char *id,
			     const struct usage_query *query, core_usage_fn *fn, void *arg)
{
	struct core_call *call = call_on(c, OP, id, arg);

	call->usage_fn = fn;
	call->usage_query = *query;
	call->run = usage_run;
	call->on_failed = usage_failed;
	return call;
}
