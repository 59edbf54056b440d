// SPDX-License-Identifier: Apache-2.0
/* The access log, gathered and written once a turn. */
#include <stdarg.h>
#include <unistd.h>

#include "base/fd.h"
#include "orchestrator/api/internal.h"

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
	if (r->route && r->route->timed && status < 300)
		metrics_time(a, r->route->timed, us);
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
