// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/daemon/service.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/turn.h"
#include "orchestrator/api/api.h"
#include "orchestrator/daemon/landlock.h"
#include "orchestrator/daemon/outbox.h"
#include "orchestrator/daemon/seccomp.h"
#include "orchestrator/events/notify.h"
#include "orchestrator/io/log-writer.h"
#include "orchestrator/io/loop.h"
#include "orchestrator/observe/reports.h"
#include "orchestrator/operator/admin.h"
#include "orchestrator/peers/peers.h"
#include "orchestrator/service/service.h"
#include "orchestrator/warden/warden.h"

struct instance {
	const struct config *config;
	struct loop *loop;
	struct service *service;
	const struct notify_counters *notify; /* NULL: it does not run */
	struct outbox *outbox;		      /* NULL: no webhook */
	struct api *api;
	struct admin *admin;
	int signals;
	int warden; /* owned by the service; polled here to notice its end */
	int admin_fd;
	enum { SERVING, DRAINING, ENDING } phase;
	int status; /* exit status */
};

/* --- stopping: requests first, then sandboxes ------------------------------------------------ */

static void on_service_gone(void *arg)
{
	struct instance *s = arg;

	loop_stop(s->loop);
}

static void end_sandboxes(struct instance *s)
{
	if (s->phase == ENDING)
		return;
	s->phase = ENDING;
	service_shutdown(s->service, on_service_gone, s);
}

static void on_drained(void *arg)
{
	end_sandboxes(arg);
}

static void stop(struct instance *s)
{
	if (s->phase != SERVING) {
		end_sandboxes(s);
		return;
	}
	log_info("stopping");
	s->phase = DRAINING;
	api_drain(s->api, on_drained, s);
}

/* --- signals and the end of the warden ------------------------------------------------------- */

static void watch_signals(struct instance *s);

static void on_signals(void *arg, int result)
{
	struct instance *s = arg;
	struct signalfd_siginfo info;

	if (result < 0)
		return;
	while (read(s->signals, &info, sizeof(info)) == (ssize_t)sizeof(info))
		stop(s);
	watch_signals(s);
}

static void watch_signals(struct instance *s)
{
	loop_poll(s->loop, s->signals, POLLIN, on_signals, s);
}

/* Ends the service but not the VMs, which the next start of rametd finds. */
static void on_warden_gone(void *arg, int result)
{
	struct instance *s = arg;

	if (result < 0)
		return;
	log_error("the warden has ended: the service exits, VMs continue");
	s->status = 1;
	loop_stop(s->loop);
}

/* --- start ----------------------------------------------------------------------------------- */

/* Opens a descriptor for SIGTERM. Ignores SIGINT, because a Ctrl-C reaches the whole process group
 * and the warden handles it. */
static int open_signals(struct instance *s, struct err *e)
{
	sigset_t set;

	signal(SIGINT, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, NULL);
	s->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return s->signals < 0 ? err_set(e, errno, "watch for signals") : 0;
}

/* --- webhooks ------------------------------------------------------------------------------- */

static void on_events(void *arg)
{
	const struct instance *s = arg;

	outbox_look(s->outbox);
}

/* Maps the counters of ramet-notify, in memory that the warden made for both, and begins to give it
 * events. */
static int start_webhooks(struct instance *s, struct err *e)
{
	bool runs = s->config->webhook_url[0] || s->config->otlp_url[0];
	void *p = mmap(NULL, sizeof(*s->notify), PROT_READ, MAP_SHARED, WARDEN_NOTIFY_FD, 0);

	s->notify = p == MAP_FAILED || !runs ? NULL : p;
	if (!s->config->webhook_url[0])
		return 0;
	service_events_watch(s->service, on_events, s);
	return outbox_new(&s->outbox, s->loop, service_store(s->service), WARDEN_OUTBOX_FD,
			  s->config->webhook_events, e);
}

static void on_watch(void *arg, struct api_watched *out)
{
	const struct instance *s = arg;
	struct outbox_stats box;

	outbox_stats(s->outbox, &box);
	*out = (struct api_watched){
		.log_dropped = log_writer_dropped(),
		.events = store_events_count(service_store(s->service)).added,
		.webhooks_behind = box.behind,
	};
	if (!s->notify)
		return;
	const volatile struct notify_counters *n = s->notify;
	out->webhooks_delivered = n->delivered;
	out->webhooks_failures = n->failures;
	out->webhooks_dropped = n->dropped + box.dropped;
	out->spans_sent = n->spans_sent;
	out->spans_dropped = n->spans_dropped;
}

/* --- start ---------------------------------------------------------------------------------- */

static int start_admin(struct instance *s, struct err *e)
{
	const struct command_env env = {
		.config = s->config,
		.keys = service_keys(s->service),
		.service = s->service,
		.store = service_store(s->service),
		.sync = service_sync,
		.backup = service_backup,
		.inspect = service_inspect,
		.loads = peers_loads,
		.peers = api_peers(s->api),
		.create = service_create,
		.fork = service_fork,
		.remove = service_delete,
	};

	return admin_new(&s->admin, s->loop, s->admin_fd, &env, e);
}

static int start(struct instance *s, struct err *e)
{
	/* The writer thread starts after the filter is set, since only later threads inherit it. */
	if (open_signals(s, e) < 0 || loop_new(&s->loop, e) < 0 ||
	    landlock_confine(s->config, e) < 0 || seccomp_confine(e) < 0 ||
	    log_writer_start(STDERR_FILENO, e) < 0 ||
	    service_new(&s->service, s->loop, s->config, s->warden, e) < 0 ||
	    start_webhooks(s, e) < 0 || api_new(&s->api, s->loop, s->service, s->config, e) < 0)
		return e->code;
	api_watch(s->api, on_watch, s);
	if (s->config->otlp_url[0])
		api_trace(s->api, WARDEN_SPANS_FD);
	if (start_admin(s, e) < 0)
		return e->code;
	watch_signals(s);
	loop_poll(s->loop, s->warden, POLLRDHUP, on_warden_gone, s);
	return 0;
}

int service_run(const struct config *config, int warden_fd, int admin_fd)
{
	struct instance s = {
		.config = config, .warden = warden_fd, .admin_fd = admin_fd, .signals = -1};
	struct err e;

	turn_soon();
	if (start(&s, &e) < 0) {
		log_error("%s", e.text);
		return WARDEN_SETUP_EXIT;
	}
	int r = loop_run(s.loop);
	if (r < 0) {
		log_error("the event loop failed: %s", strerror(-r));
		return 1;
	}
	if (s.status == 0) {
		admin_free(s.admin);
		api_free(s.api);
		service_free(s.service);
		close_fd(&s.signals);
		loop_free(s.loop);
		outbox_free(s.outbox);
		log_info("stopped");
	}
	return s.status;
}
