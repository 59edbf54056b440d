// SPDX-License-Identifier: Apache-2.0
/* The output of /metrics, in the text format of Prometheus. */
#include <string.h>

#include "base/fd.h"
#include "orchestrator/api/internal.h"
#include "orchestrator/api/route.h"
#include "orchestrator/http/counters.h"

static void metric(void *arg, const struct metric *m)
{
	struct text *t = arg;
	int name = (int)strcspn(m->name, "{");

	if (m->help)
		text_printf(t, "# HELP %.*s %s\n# TYPE %.*s %s\n", name, m->name, m->help, name,
			    m->name, strstr(m->name, "_total") ? "counter" : "gauge");
	text_printf(t, "%s %llu\n", m->name, (unsigned long long)m->value);
}

static void metrics(struct text *t, const struct metric *all, size_t n)
{
	for (size_t i = 0; i < n; i++)
		metric(t, &all[i]);
}

static void request_metrics(const struct counters *c, struct text *t)
{
	text_puts(t, "# HELP ramet_http_requests_total Requests answered, by route and class of "
		     "status.\n# TYPE ramet_http_requests_total counter\n");
	for (size_t i = 0; i <= n_routes; i++)
		for (int class = 1; class < 6; class ++) {
			if (!c->requests[i][class])
				continue;
			text_printf(t,
				    "ramet_http_requests_total{method=\"%s\",route=\"%s\",status="
				    "\"%dxx\"} %llu\n",
				    i < n_routes ? routes[i].method : "",
				    i < n_routes ? routes[i].pattern : "", class,
				    (unsigned long long)c->requests[i][class]);
		}
}

static void histogram(const struct histogram *h, const char *name, const char *help, struct text *t)
{
	uint64_t below = 0;

	text_printf(t, "# HELP %s %s\n# TYPE %s histogram\n", name, help, name);
	for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
		below += h->bucket[i];
		text_printf(t, "%s_bucket{le=\"%g\"} %llu\n", name, histogram_bucket_s[i],
			    (unsigned long long)below);
	}
	text_printf(t, "%s_bucket{le=\"+Inf\"} %llu\n%s_sum %.6f\n%s_count %llu\n", name,
		    (unsigned long long)h->count, name, h->seconds, name,
		    (unsigned long long)h->count);
}

static void time_metrics(const struct counters *c, struct text *t)
{
	histogram(&c->times[TIMED_CREATE], "ramet_create_seconds",
		  "Time of a create from its request to its answer.", t);
	histogram(&c->times[TIMED_FORK], "ramet_fork_seconds",
		  "Time of a fork from its request to its answer.", t);
	histogram(&c->times[TIMED_RESUME], "ramet_resume_seconds",
		  "Time of a resume from its request to its answer.", t);
	histogram(&c->times[TIMED_EXEC], "ramet_exec_seconds",
		  "Time of a call from its request to its exit event.", t);
}

static void error_metrics(const struct counters *c, struct text *t)
{
	text_puts(t, "# HELP ramet_errors_total Requests answered with an error, by its code.\n"
		     "# TYPE ramet_errors_total counter\n");
	for (size_t i = 0; i < c->n_errors; i++)
		text_printf(t, "ramet_errors_total{code=\"%s\"} %llu\n", c->errors[i].code,
			    (unsigned long long)c->errors[i].count);
}

static void http_metrics(const struct api *a, const struct counters *c, struct text *t)
{
	const struct metric all[] = {
		{"ramet_http_requests_live", "Requests in flight.", c->live},
		{"ramet_http_connections", "Open connections.", c->conns},
		{"ramet_http_connections_total", "Connections accepted.", c->connections},
		{"ramet_http_sent_bytes_total", "Bytes of answers, without headers.",
		 c->bytes_sent},
		{"ramet_http_resets_cut_total",
		 "Connections closed because the client reset too many requests.", c->resets_cut},
		{"ramet_http_stalled_cut_total",
		 "Connections and streams cut off because their clients did not read.",
		 c->stalled_cut},
		{"ramet_http_limited_total{limit=\"client_connections_s\"}",
		 "Connections and requests refused, by the setting that limits them.",
		 c->limited[LIMIT_CONNECTIONS]},
		{"ramet_http_limited_total{limit=\"client_requests_s\"}", NULL,
		 c->limited[LIMIT_REQUESTS]},
		{"ramet_http_limited_total{limit=\"client_failures_s\"}", NULL,
		 c->limited[LIMIT_FAILURES]},
		{"ramet_http_limited_total{limit=\"tenant_requests_s\"}", NULL,
		 c->limited[LIMIT_TENANT]},
	};
	metrics(t, all, ARRAY_LEN(all));
}

static void watch_metrics(const struct api *a, const struct counters *c, struct text *t)
{
	struct api_watched w = {0};

	a->watch_fn(a->watch_arg, &w);
	const struct metric all[] = {
		{"ramet_log_lines_dropped_total",
		 "Lines dropped from the service's log because the reader was too slow.",
		 w.log_dropped},
		{"ramet_audit_lines_total", "Events added to the audit log.", w.events},
		{"ramet_webhooks_delivered_total", "Webhooks delivered since rametd was started.",
		 w.webhooks_delivered},
		{"ramet_webhooks_failures_total", "Attempts to deliver a webhook that failed.",
		 w.webhooks_failures},
		{"ramet_webhooks_dropped_total", "Webhooks that were given up after retries.",
		 w.webhooks_dropped},
		{"ramet_spans_sent_total", "Spans that the collector at otlp_url has accepted.",
		 w.spans_sent},
		{"ramet_spans_dropped_total",
		 "Spans dropped because the collector was too slow, or refused them.",
		 w.spans_dropped + c->spans_dropped},
		{"ramet_webhooks_behind",
		 "Lines of the audit log that ramet-notify has not processed.", w.webhooks_behind},
	};
	metrics(t, all, ARRAY_LEN(all));
}

void metrics_print(struct api *a, struct text *t)
{
	const struct counters *c = http_counters(a->http);

	metric(t, &(struct metric){"ramet_build_info{version=\"" RAMET_VERSION "\"}",
				   "Version of the service.", 1});
	service_metrics(a->service, metric, t);
	http_metrics(a, c, t);
	request_metrics(c, t);
	error_metrics(c, t);
	time_metrics(c, t);
	if (a->watch_fn)
		watch_metrics(a, c, t);
}
