// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "orchestrator/config/config.h"
#include "orchestrator/events/line.h"
#include "orchestrator/events/notify.h"
#include "orchestrator/events/post.h"
#include "orchestrator/events/rules.h"
#include "orchestrator/events/spans.h"

#define ASK_AGAIN_MS 5000 /* the service may have restarted */

struct notify {
	struct config config;
	struct notify_counters *counters;
	struct post *post;
	uint64_t done; /* number of the last event that was handled */
};

/* --- one line ------------------------------------------------------------------------------- */

static void pause_ms(uint32_t ms)
{
	struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};

	while (nanosleep(&left, &left) < 0 && errno == EINTR)
		;
}

static uint32_t wait_of(unsigned failures)
{
	uint32_t chance;

	random_bytes(&chance, sizeof(chance));
	return rules_wait_ms(failures, chance);
}

/* Sends one line, with retries. Later lines wait for it, because they are sent in order. */
static void deliver(struct notify *n, const struct audit_line *head, const char *line, size_t len)
{
	struct err e;

	for (unsigned failures = 1; post_send(n->post, head, line, len, &e) < 0; failures++) {
		notify_count(&n->counters->failures, 1);
		if (realtime_ms() - head->at_ms > GIVE_UP_MS) {
			notify_count(&n->counters->dropped, 1);
			log_error("webhook %s (%s) was dropped after a day of attempts: %s",
				  head->id, head->name, e.text);
			return;
		}
		uint32_t wait = wait_of(failures);
		log_warn("webhook %s (%s), attempt %u: %s; next attempt in %u ms", head->id,
			 head->name, failures, e.text, wait);
		pause_ms(wait);
	}
	notify_count(&n->counters->delivered, 1);
}

/* --- all lines ------------------------------------------------------------------------------ */

static void ask(const struct notify *n)
{
	const struct notify_request request = {n->done};

	if (send(NOTIFY_SOCKET_FD, &request, sizeof(request), MSG_DONTWAIT) < 0 && errno != EAGAIN)
		log_error("cannot ask the service for events: %s", strerror(errno));
}

/* Receives a line; returns its length, or 0 when none came in time. */
static size_t receive(char line[static AUDIT_LINE_MAX])
{
	struct pollfd p = {.fd = NOTIFY_SOCKET_FD, .events = POLLIN};

	if (poll(&p, 1, ASK_AGAIN_MS) <= 0)
		return 0;
	ssize_t len = recv(NOTIFY_SOCKET_FD, line, AUDIT_LINE_MAX, MSG_DONTWAIT);
	return len > 0 ? (size_t)len : 0;
}

static _Noreturn void serve(struct notify *n)
{
	char line[AUDIT_LINE_MAX];
	struct audit_line head;

	for (;;) {
		ask(n);
		size_t len = receive(line);
		if (!audit_line_parse(&head, line, len) || head.n <= n->done)
			continue;
		deliver(n, &head, line, len);
		n->done = head.n;
	}
}

/* --- start ---------------------------------------------------------------------------------- */

static int take_over(struct notify *n, struct err *e)
{
	if (pread(NOTIFY_CONFIG_FD, &n->config, sizeof(n->config), 0) != (ssize_t)sizeof(n->config))
		return err_say(e, EINVAL,
			       "ramet-notify must be started by rametd, and be of the same "
			       "version");
	log_init("notify", config_log_level(&n->config));
	log_set_json(n->config.log_format[0] == 'j');
	void *p = mmap(NULL, sizeof(*n->counters), PROT_READ | PROT_WRITE, MAP_SHARED,
		       NOTIFY_COUNTERS_FD, 0);
	if (p == MAP_FAILED)
		return err_set(e, errno, "map the counters");
	n->counters = p;
	close(NOTIFY_CONFIG_FD);
	close(NOTIFY_COUNTERS_FD);
	return 0;
}

/* Prevents other processes from reading the memory of this one, which contains the secret.
 * Afterwards this process cannot access /proc/self either. */
static void hide(void)
{
	const struct rlimit none = {0, 0};

	setrlimit(RLIMIT_CORE, &none);
	prctl(PR_SET_DUMPABLE, 0);
}

int main(void)
{
	struct notify n = {.done = 0};
	struct err e;

	log_init("notify", LOG_INFO);
	prctl(PR_SET_PDEATHSIG, SIGKILL); /* ends with the warden */
	signal(SIGPIPE, SIG_IGN);
	int r = take_over(&n, &e);
	if (r == 0 && n.config.webhook_url[0])
		r = post_new(&n.post, &n.config, n.config.webhook_url, &e);
	if (r == 0 && n.config.otlp_url[0])
		r = spans_start(&n.config, n.counters, &e);
	if (r < 0) {
		log_error("%s", e.text);
		return 1;
	}
	hide();
	while (!n.config.webhook_url[0])
		pause();
	serve(&n);
}
