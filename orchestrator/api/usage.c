// SPDX-License-Identifier: Apache-2.0
/* Serves the metrics of a sandbox: its use of the host. */
#include "base/num.h"
#include "orchestrator/api/handler.h"
#include "orchestrator/json/query.h"
#include "orchestrator/observe/usage.h"

/* A whole answer has 2,500 numbers, so they are added without printf. */
static void add_number(struct text *t, const char *name, uint64_t n)
{
	text_puts(t, name);
	text_number(t, (int64_t)n);
}

/* Adds n / 10^digits. */
static void add_decimal(struct text *t, const char *name, uint64_t n, unsigned digits)
{
	uint64_t unit = digits == 2 ? 100 : 1000;

	add_number(t, name, n / unit);
	text_putc(t, '.');
	for (n %= unit; unit > 1; n %= unit) {
		unit /= 10;
		text_putc(t, (char)('0' + n / unit));
	}
}

static void add_sample(struct text *t, const struct usage_sample *s)
{
	text_puts(t, "{\"at\":");
	json_time(t, s->at_ms);
	if (s->cpu == USAGE_CPU_NONE)
		text_puts(t, ",\"cpu_percent\":null");
	else
		add_decimal(t, ",\"cpu_percent\":", s->cpu, 2);
	add_decimal(t, ",\"cpu_seconds\":", s->cpu_ms, 3);
	add_number(t, ",\"memory_used_bytes\":", s->memory_bytes);
	add_number(t, ",\"disk_layer_bytes\":", s->disk_bytes);
	add_number(t, ",\"network_received_bytes\":", s->net_in_bytes);
	add_number(t, ",\"network_sent_bytes\":", s->net_out_bytes);
	text_putc(t, '}');
}

static void on_usage(void *arg, const struct usage_view *view, const struct failure *f)
{
	struct request *r = arg;
	struct text *t = &r->out;

	if (!request_called_well(r, f))
		return;
	add_number(t, "{\"vcpus\":", view->size.vcpus);
	add_number(t, ",\"memory_limit_bytes\":", (uint64_t)view->size.ram_mib << 20);
	add_number(t, ",\"disk_size_bytes\":", (uint64_t)view->size.rootfs_gb << 30);
	add_number(t, ",\"step_seconds\":", USAGE_STEP_MS / 1000);
	text_puts(t, ",\"now\":");
	add_sample(t, &view->now);
	text_puts(t, ",\"samples\":[");
	for (unsigned i = 0; i < view->n; i++) {
		if (i)
			text_putc(t, ',');
		add_sample(t, &view->samples[i]);
	}
	text_puts(t, "]}\n");
	answer(r, 200, "application/json");
}

/* Reads the query. Returns false, with an answer given, when it is invalid. */
static bool ask_query(struct request *r, struct usage_query *q)
{
	const h2o_iovec_t url = r->req->input.path;
	size_t most = USAGE_KEPT;
	struct err e;

	if (query_time(url.base, url.len, "since", &q->since_ms, &e) < 0 ||
	    query_time(url.base, url.len, "until", &q->until_ms, &e) < 0)
		return bad_request(r, "%s", e.text);
	if (q->since_ms && q->until_ms && q->since_ms > q->until_ms)
		return bad_request(r, "since must not be later than until");
	if (!ask_limit(r, &most))
		return false;
	q->most = min_u32(most, USAGE_KEPT);
	return true;
}

void serve_usage(struct request *r)
{
	struct usage_query query = {0};

	if (!ask_query(r, &query) || !answer_may_be_long(r))
		return;
	request_ref(r);
	r->op = service_usage(r->service, r->tenant, r->id, &query, on_usage, r);
}
