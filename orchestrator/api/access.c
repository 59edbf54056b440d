// SPDX-License-Identifier: Apache-2.0
/* The access log, gathered and written once a turn, and what /metrics tells. */
#include <stdarg.h>
#include <unistd.h>

#include "base/fd.h"
#include "orchestrator/api/internal.h"

static const double bucket_s[EXEC_BUCKETS] = {.001, .0025, .005, .01, .025, .05, .1, .25,
					      .5,   1,	   2.5,	 5,   10,   30,	 60, 300};

void access_flush(struct api *a)
{
	if (!a->log_len)
		return;
	ssize_t ignored = write(STDERR_FILENO, a->log, a->log_len);
	(void)ignored; /* there is nowhere left to tell that the log is gone */
	a->log_len = 0;
}

#define add_line(a, level, ...)                                                                    \
	do {                                                                                       \
		if (sizeof((a)->log) - (a)->log_len < LOG_LINE_MAX)                                \
			access_flush(a);                                                           \
		(a)->log_len +=                                                                    \
			log_render((a)->log + (a)->log_len, LOG_LINE_MAX, level, __VA_ARGS__);     \
	} while (0)

static void count(struct api *a, size_t route, int status, size_t bytes)
{
	a->counters.requests[route][status / 100 % 6]++;
	a->counters.bytes_sent += bytes;
}

/* Of a path: without its query, which may hold what is nobody's business, and not endless. */
static int shown_len(h2o_iovec_t path)
{
	const char *query = memchr(path.base, '?', path.len);
	size_t len = query ? (size_t)(query - path.base) : path.len;

	return len < 200 ? (int)len : 200;
}

void access_log_request(struct api *a, const struct request *r)
{
	uint64_t us = now_us() - r->began_us;
	h2o_iovec_t method = r->req->input.method, path = r->req->input.path;
	int status = r->started ? r->status : 499; /* the client left before there was an answer */
	enum log_level level = r->route && r->route->quiet && status < 400 ? LOG_DEBUG : LOG_INFO;

	count(a, r->route ? (size_t)(r->route - routes) : n_routes, status, r->bytes);
	add_line(a, level, "%.*s %.*s %d %zu bytes %u.%03u ms%s%s%s",
		 method.len < 20 ? (int)method.len : 20, method.base, shown_len(path), path.base,
		 status, r->bytes, (unsigned)(us / 1000), (unsigned)(us % 1000),
		 r->finished || !r->started ? "" : " cut off", r->traceparent[0] ? " trace " : "",
		 r->traceparent);
}

void access_log_refused(struct api *a, h2o_req_t *req)
{
	h2o_iovec_t method = req->input.method, path = req->input.path;

	count(a, n_routes, req->res.status, req->res.content_length);
	add_line(a, LOG_INFO, "%.*s %.*s %d refused: %s", method.len < 20 ? (int)method.len : 20,
		 method.base, shown_len(path), path.base, req->res.status, req->res.reason);
}

void access_count_exec(struct api *a, uint64_t us)
{
	double s = (double)us / 1e6;
	size_t i = 0;

	while (i < EXEC_BUCKETS && s > bucket_s[i])
		i++;
	a->counters.exec_bucket[i]++;
	a->counters.exec_count++;
	a->counters.exec_seconds += s;
}

/* --- metrics -------------------------------------------------------------------------------- */

static void metric(struct text *t, const char *name, const char *type, const char *help,
		   uint64_t value)
{
	text_printf(t, "# HELP %s %s\n# TYPE %s %s\n%s %llu\n", name, help, name, type, name,
		    (unsigned long long)value);
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

static void exec_metrics(const struct counters *c, struct text *t)
{
	uint64_t below = 0;

	text_puts(t, "# HELP ramet_exec_seconds Time of a call from its request to its exit "
		     "event.\n# TYPE ramet_exec_seconds histogram\n");
	for (size_t i = 0; i < EXEC_BUCKETS; i++) {
		below += c->exec_bucket[i];
		text_printf(t, "ramet_exec_seconds_bucket{le=\"%g\"} %llu\n", bucket_s[i],
			    (unsigned long long)below);
	}
	text_printf(t,
		    "ramet_exec_seconds_bucket{le=\"+Inf\"} %llu\nramet_exec_seconds_sum "
		    "%.6f\nramet_exec_seconds_count %llu\n",
		    (unsigned long long)c->exec_count, c->exec_seconds,
		    (unsigned long long)c->exec_count);
}

static void core_metrics(const struct core_figures *f, struct text *t)
{
	metric(t, "ramet_sandboxes", "gauge", "Sandboxes there are now.", f->sandboxes);
	metric(t, "ramet_creates_total", "counter", "Sandboxes created.", f->creates);
	metric(t, "ramet_create_failures_total", "counter", "Creates that failed.",
	       f->create_failures);
	metric(t, "ramet_execs_total", "counter", "Calls of exec started.", f->execs);
	metric(t, "ramet_vm_deaths_total", "counter", "VMs that died by themselves.", f->vm_deaths);
	metric(t, "ramet_file_calls_total", "counter", "Operations on files started.",
	       f->file_calls);
	metric(t, "ramet_file_failures_total", "counter", "Operations on files that failed.",
	       f->file_failures);
	metric(t, "ramet_file_bytes_in_total", "counter", "Bytes of files written into guests.",
	       f->file_bytes_in);
	metric(t, "ramet_file_bytes_out_total", "counter", "Bytes of files read from guests.",
	       f->file_bytes_out);
	metric(t, "ramet_ptys_total", "counter", "Terminals started.", f->ptys);
	metric(t, "ramet_pty_bytes_in_total", "counter", "Bytes typed into terminals.",
	       f->pty_bytes_in);
	metric(t, "ramet_pty_bytes_out_total", "counter",
	       "Bytes of terminals' output, for each listener.", f->pty_bytes_out);
	metric(t, "ramet_operations", "gauge", "Operations on files and terminals under way.",
	       f->operations);
	metric(t, "ramet_listeners", "gauge", "Listeners to terminals.", f->listeners);
	metric(t, "ramet_pool_hits_total", "counter", "Creates served by a warm sandbox.",
	       f->pool_hits);
	metric(t, "ramet_pool_misses_total", "counter", "Creates that found no warm sandbox.",
	       f->pool_misses);
	metric(t, "ramet_template_boots_total", "counter", "Images of templates made.",
	       f->template_boots);
	metric(t, "ramet_templates_building", "gauge", "Images being made now.",
	       f->templates_building);
	metric(t, "ramet_shells_ready", "gauge", "Shells in the pool.", f->shells_ready);
	metric(t, "ramet_warm_ready", "gauge", "Warm sandboxes in the pool.", f->warm_ready);
	metric(t, "ramet_warm_default_ready", "gauge",
	       "Of these, of the default template and size.", f->warm_default_ready);
}

void access_metrics(struct api *a, struct text *t)
{
	const struct counters *c = &a->counters;
	struct core_figures figures;
	size_t live = 0;

	core_figures(a->core, &figures);
	core_metrics(&figures, t);
	list_each (pos, &a->live)
		live++;
	metric(t, "ramet_http_requests_live", "gauge", "Requests under way.", live);
	metric(t, "ramet_http_connections", "gauge", "Open connections.", a->n_conns);
	metric(t, "ramet_http_connections_total", "counter", "Connections accepted.",
	       c->connections);
	metric(t, "ramet_http_sent_bytes_total", "counter", "Bytes of answers, without heads.",
	       c->bytes_sent);
	metric(t, "ramet_http_resets_cut_total", "counter",
	       "Connections cut for resetting too many requests.", c->resets_cut);
	metric(t, "ramet_http_stalled_cut_total", "counter", "Connections cut for reading nothing.",
	       c->stalled_cut);
	request_metrics(c, t);
	exec_metrics(c, t);
}
