// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/events/spans.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "orchestrator/events/otlp.h"
#include "orchestrator/events/post.h"

#define BATCH_MAX   128
#define GATHER_MS   500 /* how long a batch waits for further spans after its first one */
#define ATTEMPTS    3
#define RETRY_AFTER 1 /* seconds; meanwhile spans wait in the socket, which is bounded */

static struct {
	struct post *post;
	struct notify_counters *counters;
	bool failing;
	struct span batch[BATCH_MAX];
} own;

/* Waits for a span for at most `ms` milliseconds, or forever if `ms` is negative. Returns false
 * when none came. */
static bool receive(struct span *out, int ms)
{
	struct pollfd p = {.fd = NOTIFY_SPANS_FD, .events = POLLIN};

	if (poll(&p, 1, ms) <= 0)
		return false;
	ssize_t len = recv(NOTIFY_SPANS_FD, out, sizeof(*out), MSG_DONTWAIT);
	if (len == 0) /* only in tests; the warden keeps the other end */
		pause();
	return len > 0 && otlp_is_span(out, (size_t)len);
}

static size_t gather(void)
{
	size_t n = 0;

	while (!receive(&own.batch[0], -1))
		;
	uint64_t until = boottime_ms() + GATHER_MS;
	for (n = 1; n < BATCH_MAX; n++) {
		uint64_t now = boottime_ms();
		if (now >= until || !receive(&own.batch[n], (int)(until - now)))
			break;
	}
	return n;
}

static int post(const char *body, size_t len, struct err *e)
{
	int r = -1;

	for (unsigned i = 0; r < 0 && i < ATTEMPTS; i++) {
		if (i)
			sleep(RETRY_AFTER);
		r = post_send(own.post, NULL, body, len, e);
	}
	return r;
}

static int deliver(size_t n, struct err *e)
{
	char *body = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&body, &len);

	if (!out)
		return err_set(e, errno, "make a request with spans");
	otlp_write(out, own.batch, n, RAMET_VERSION);
	int r = fclose(out) == 0 ? post(body, len, e)
				 : err_set(e, errno, "make a request with spans");
	free(body);
	return r;
}

static void *serve(void *arg)
{
	for (;;) {
		size_t n = gather();
		struct err e;
		bool failed = deliver(n, &e) < 0;

		notify_count(failed ? &own.counters->spans_dropped : &own.counters->spans_sent, n);
		/* Logs the first of consecutive failures, and the first success after them. */
		if (failed && !own.failing)
			log_warn("otlp_url: %s; spans are dropped until the collector accepts them",
				 e.text);
		else if (!failed && own.failing)
			log_info("otlp_url: the collector accepts spans again");
		own.failing = failed;
	}
	return NULL;
}

int spans_start(const struct config *config, struct notify_counters *counters, struct err *e)
{
	pthread_t thread;

	own.counters = counters;
	int r = post_new(&own.post, config, config->otlp_url, e);
	if (r < 0)
		return r;
	r = pthread_create(&thread, NULL, serve, NULL);
	return r ? err_set(e, r, "start a thread for spans") : 0;
}
