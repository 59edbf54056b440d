// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/random.h"
#include "orchestrator/config/config.h"
#include "orchestrator/events/cursor.h"
#include "orchestrator/events/files.h"
#include "orchestrator/events/notify.h"
#include "orchestrator/events/post.h"
#include "orchestrator/events/rules.h"
#include "orchestrator/events/spans.h"
#include "orchestrator/events/tail.h"

#define LOOK_AGAIN_MS 5000 /* polls the folder, in case inotify misses a change */
#define SKIPPED_SAVE  1000 /* saves the cursor also after this many lines that are not sent */

struct notify {
	struct config config;
	struct notify_counters *counters;
	struct post *post;
	struct tail tail;
	int changes; /* inotify */
	uint64_t saved;
};

static void store(uint64_t *counter, uint64_t value)
{
	__atomic_store_n(counter, value, __ATOMIC_RELAXED);
}

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
		store(&n->counters->failures, n->counters->failures + 1);
		if (realtime_ms() - head->at_ms > GIVE_UP_MS) {
			store(&n->counters->dropped, n->counters->dropped + 1);
			log_error("webhook %s (%s) was dropped after a day of attempts: %s",
				  head->id, head->name, e.text);
			return;
		}
		uint32_t wait = wait_of(failures);
		log_warn("webhook %s (%s), attempt %u: %s; next attempt in %u ms", head->id,
			 head->name, failures, e.text, wait);
		pause_ms(wait);
	}
	store(&n->counters->delivered, n->counters->delivered + 1);
}

static void save(struct notify *n, uint64_t line)
{
	struct err e;

	if (line == n->saved)
		return;
	if (cursor_save(NOTIFY_OWN_FD, line, &e) < 0)
		log_error("%s: after a restart, webhooks sent since the last save are sent again",
			  e.text);
	else
		n->saved = line;
}

/* Counts and logs lines that are missing between two lines that were read. */
static void report_gone(struct notify *n, uint64_t before)
{
	uint64_t gone = n->tail.gone - before;

	if (!gone)
		return;
	store(&n->counters->dropped, n->counters->dropped + gone);
	log_error("%llu lines were removed from the audit log before they could be sent",
		  (unsigned long long)gone);
}

static void on_line(struct notify *n, const struct audit_line *head, const char *line, size_t len)
{
	bool wanted = rules_want(n->config.webhook_events, head->name);

	if (wanted)
		deliver(n, head, line, len);
	store(&n->counters->done, head->n);
	if (wanted || head->n - n->saved >= SKIPPED_SAVE)
		save(n, head->n);
}

/* --- all lines ------------------------------------------------------------------------------ */

static void wait_for_change(struct notify *n)
{
	struct pollfd p = {.fd = n->changes, .events = POLLIN};
	char events[4096];

	if (poll(&p, n->changes >= 0, LOOK_AGAIN_MS) > 0 &&
	    read(n->changes, events, sizeof(events)) < 0)
		close_fd(&n->changes);
}

static _Noreturn void serve(struct notify *n)
{
	struct audit_line head;
	const char *line;
	size_t len;

	for (;;) {
		uint64_t gone = n->tail.gone;

		if (tail_next(&n->tail, &head, &line, &len)) {
			report_gone(n, gone);
			on_line(n, &head, line, len);
		} else {
			wait_for_change(n);
		}
	}
}

/* --- start ---------------------------------------------------------------------------------- */

/* Returns the number of the first line to send; 0: the oldest there is. The first start sends only
 * lines added from then on. With a damaged cursor, all lines are sent again, since a repeated event
 * does less harm than a missing one. */
static uint64_t first_line(struct notify *n)
{
	uint64_t last = audit_files_last(NOTIFY_AUDIT_FD), done = 0;
	struct err e;

	int r = cursor_load(NOTIFY_OWN_FD, &done, &e);
	if (r < 0) {
		log_error("%s: all lines of the audit log will be sent again", e.text);
		return 0;
	}
	if (r == 0) {
		done = last;
		n->saved = UINT64_MAX; /* nothing was saved */
		save(n, done);
	} else if (done > last) {
		log_warn("the audit log was replaced by a new one: sending that from its first "
			 "line");
		return 0;
	}
	n->saved = done;
	store(&n->counters->done, done);
	return done + 1;
}

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

static void watch_changes(struct notify *n)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", NOTIFY_AUDIT_FD);
	n->changes = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	if (inotify_add_watch(n->changes, path, IN_MODIFY | IN_CREATE | IN_MOVED_TO) < 0)
		log_warn("cannot watch the audit log; reading it every %d s", LOOK_AGAIN_MS / 1000);
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
	struct notify n = {.changes = -1};
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
	if (!n.config.webhook_url[0]) {
		hide();
		for (;;)
			pause();
	}
	watch_changes(&n);
	hide();
	tail_init(&n.tail, NOTIFY_AUDIT_FD, first_line(&n));
	serve(&n);
}
