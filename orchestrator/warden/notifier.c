// SPDX-License-Identifier: Apache-2.0
/*
 * The process that sends events as webhooks, and what it shares with the service: a socket over
 * which it gets them, and counters. It connects to other hosts, so it has its own user, which may
 * access no file.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/num.h"
#include "orchestrator/events/notify.h"
#include "orchestrator/warden/program.h"
#include "orchestrator/warden/warden-internal.h"

#define RESTART_FIRST_MS 1000
#define RESTART_MOST_MS	 60000
#define LIVED_WELL_MS	 60000
#define MEMORY_MAX	 (256ull << 20)
#define PIDS_MAX	 16 /* libcurl resolves names in a thread */
#define FILES_MAX	 64

/* --- the process ---------------------------------------------------------------------------- */

static int start_notifier(struct warden *w, struct err *e)
{
	static char *const argv[] = {"ramet-notify", NULL};
	const struct notifier *n = &w->notifier;
	const int fds[] = {n->events[1], n->config, n->counters, n->spans[1]};
	const struct program p = {
		.name = "notify",
		.argv = argv,
		.account = n->account,
		.limits = {.memory_max = MEMORY_MAX, .pids_max = PIDS_MAX},
		.files = FILES_MAX,
		.exe = n->program,
		.fds = fds,
		.n_fds = ARRAY_LEN(fds),
		.setup_exit = 1,
	};

	_Static_assert(NOTIFY_SOCKET_FD == PROGRAM_FIRST_FD &&
			       NOTIFY_SOCKET_FD + ARRAY_LEN(fds) - 1 == NOTIFY_SPANS_FD,
		       "descriptor numbers that ramet-notify expects");
	return program_start(&w->tree, &p, e);
}

static int start(struct warden *w, struct err *e)
{
	struct notifier *n = &w->notifier;

	n->pidfd = start_notifier(w, e);
	n->started_ms = warden_now_ms();
	return n->pidfd < 0 ? n->pidfd
			    : warden_watch(w, n->pidfd, EPOLLIN, SOURCE_NOTIFIER_PID, 0, e);
}

static void start_later(struct notifier *n)
{
	struct itimerspec at = {0};

	n->pause_ms = backoff_next(n->pause_ms, RESTART_FIRST_MS, RESTART_MOST_MS);
	at.it_value.tv_sec = n->pause_ms / 1000;
	timerfd_settime(n->timer, 0, &at, NULL);
}

void notifier_on_timer(struct warden *w)
{
	struct err e;
	uint64_t times;

	if (read(w->notifier.timer, &times, sizeof(times)) < 0 || w->phase != PHASE_SERVING ||
	    w->notifier.pidfd >= 0)
		return;
	if (start(w, &e) < 0) {
		log_error("cannot start ramet-notify: %s", e.text);
		start_later(&w->notifier);
	}
}

void notifier_on_pid(struct warden *w)
{
	struct notifier *n = &w->notifier;
	siginfo_t info;

	if (!program_ended(&n->pidfd, &info))
		return;
	log_error("ramet-notify ended with %s %d: restarting it",
		  info.si_code == CLD_EXITED ? "status" : "signal", info.si_status);
	if (warden_now_ms() - n->started_ms > LIVED_WELL_MS)
		n->pause_ms = 0;
	start_later(n);
}

/* --- resources of ramet-notify and the service ---------------------------------------------- */

static int make_counters(struct notifier *n, struct err *e)
{
	n->counters = memfd_create("webhooks", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (n->counters < 0 || ftruncate(n->counters, sizeof(struct notify_counters)) < 0 ||
	    fcntl(n->counters, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		return err_set(e, errno, "allocate shared memory for the webhooks");
	return 0;
}

/* Both ends of each pair outlive the processes that use them. */
static int make_sockets(struct notifier *n, struct err *e)
{
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, n->events) < 0 ||
	    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, n->spans) < 0)
		return err_set(e, errno, "create a socket pair for webhooks and spans");
	return 0;
}

static int open_own(struct warden *w, struct err *e)
{
	struct notifier *n = &w->notifier;

	n->program = open(w->config->notify, O_RDONLY | O_CLOEXEC);
	if (n->program < 0)
		return err_set(e, errno, "open the program %s (setting notify)", w->config->notify);
	n->config = seal_config(w->config, e);
	if (n->config < 0)
		return n->config;
	n->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (n->timer < 0)
		return err_set(e, errno, "create a timer");
	return warden_watch(w, n->timer, EPOLLIN, SOURCE_NOTIFIER_TIMER, 0, e);
}

int notifier_init(struct warden *w, struct err *e)
{
	struct notifier *n = &w->notifier;

	n->account = account_of_notify(w->config->vm_uid_base);
	n->wanted = w->config->webhook_url[0] || w->config->otlp_url[0];
	scoped_fd int cgroup = cgroup_make(&w->tree, "notify", NULL, e);
	/* The process of a previous warden may still be exiting. */
	if (cgroup < 0 || cgroup_empty(&w->tree, "notify", e) < 0 || make_counters(n, e) < 0 ||
	    make_sockets(n, e) < 0)
		return e->code;
	if (!n->wanted)
		return 0;
	return open_own(w, e) < 0 ? e->code : start(w, e);
}

void notifier_fini(struct warden *w)
{
	struct notifier *n = &w->notifier;
	siginfo_t info;

	if (n->pidfd >= 0) {
		syscall(SYS_pidfd_send_signal, n->pidfd, SIGKILL, NULL, 0);
		waitid(P_PIDFD, (id_t)n->pidfd, &info, WEXITED);
	}
	close_fd(&n->pidfd);
	close_fd(&n->timer);
	close_fd(&n->program);
	close_fd(&n->config);
	close_fd(&n->counters);
	close_fd(&n->events[0]);
	close_fd(&n->events[1]);
	close_fd(&n->spans[0]);
	close_fd(&n->spans[1]);
}
