// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/warden/warden-internal.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/privileges.h"
#include "orchestrator/warden/directory.h"

#define EVENTS_MAX 64
#define LOCK_TRIES 60
#define KEPT_LEAST (128ull << 20) /* bytes of the host's memory that are not for VMs */
/* Added to stop_timeout_s, for the service to end its VMs and the kernel to tear them down. */
#define STOP_GRACE_MS  10000
#define CLEAN_LIMIT_MS 30000

/* --- event loop helpers ---------------------------------------------------------------------- */

int warden_watch(struct warden *w, int fd, uint32_t events, enum source source, uint32_t slot,
		 struct err *e)
{
	struct epoll_event ev = {.events = events, .data.u64 = (uint64_t)source << 32 | slot};

	if (epoll_ctl(w->epoll, EPOLL_CTL_ADD, fd, &ev) < 0)
		return err_set(e, errno, "watch a descriptor");
	return 0;
}

void warden_timer(struct warden *w, uint64_t after_ms)
{
	struct itimerspec at = {.it_value = {.tv_sec = (time_t)(after_ms / 1000),
					     .tv_nsec = (long)(after_ms % 1000) * 1000000}};

	timerfd_settime(w->timer, 0, &at, NULL);
}

uint64_t warden_now_ms(void)
{
	return now_ns() / 1000000;
}

/* --- stopping -------------------------------------------------------------------------------- */

/* Advances a stop in progress as far as possible. */
static void advance_stop(struct warden *w)
{
	if (w->phase == PHASE_STOPPING && w->service.state == SERVICE_ENDED) {
		w->phase = PHASE_CLEANING;
		warden_timer(w, CLEAN_LIMIT_MS);
		slots_kill_all(w);
	}
	if (w->phase == PHASE_CLEANING && w->taken == 0)
		w->phase = PHASE_OVER;
}

static void stop(struct warden *w)
{
	if (w->phase != PHASE_SERVING) {
		log_warn("received a second stop signal: killing the service");
		service_signal(w, SIGKILL);
		return;
	}
	log_info("stopping");
	w->phase = PHASE_STOPPING;
	if (w->service.state != SERVICE_RUNNING) {
		w->service.state = SERVICE_ENDED;
		return;
	}
	service_signal(w, SIGTERM);
	warden_timer(w, w->config->stop_timeout_s * 1000ull + STOP_GRACE_MS);
}

static void on_signals(struct warden *w)
{
	struct signalfd_siginfo info;

	while (read(w->signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
		if (info.ssi_signo == SIGHUP)
			log_info("ignoring SIGHUP: send it to rametd's first process");
		else
			stop(w);
	}
}

static void restart_service(struct warden *w)
{
	struct err e;

	if (service_start(w, &e) == 0)
		return;
	log_error("cannot restart the service: %s", e.text);
	warden_timer(w, 1000);
}

static void on_timer(struct warden *w)
{
	uint64_t times;

	if (read(w->timer, &times, sizeof(times)) < 0)
		return;
	if (w->phase == PHASE_SERVING && w->service.state == SERVICE_WAITING) {
		restart_service(w);
	} else if (w->phase == PHASE_STOPPING) {
		log_warn("the service did not end in time: killing it");
		service_signal(w, SIGKILL);
	} else if (w->phase == PHASE_CLEANING) {
		log_error("%u VM processes did not die and are left behind", w->taken);
		w->result = -ETIMEDOUT;
		w->phase = PHASE_OVER;
	}
}

/* --- the loop -------------------------------------------------------------------------------- */

static void dispatch(struct warden *w, const struct epoll_event *ev)
{
	uint32_t slot = (uint32_t)ev->data.u64;

	switch ((enum source)(ev->data.u64 >> 32)) {
	case SOURCE_SIGNALS:
		on_signals(w);
		break;
	case SOURCE_TIMER:
		on_timer(w);
		break;
	case SOURCE_SERVICE_SOCKET:
		service_on_socket(w, ev->events);
		break;
	case SOURCE_SERVICE_PID:
		service_on_pid(w);
		break;
	case SOURCE_NOTIFIER_PID:
		notifier_on_pid(w);
		break;
	case SOURCE_NOTIFIER_TIMER:
		notifier_on_timer(w);
		break;
	case SOURCE_SLOT_STATUS:
		slots_on_status(w, slot);
		break;
	case SOURCE_SLOT_PID:
		slots_on_pid(w, slot);
		break;
	case SOURCE_SLOT_EVENTS:
		slots_on_events(w, slot);
		break;
	}
}

static int loop(struct warden *w, struct err *e)
{
	struct epoll_event events[EVENTS_MAX];

	while (w->phase != PHASE_OVER) {
		int n = epoll_wait(w->epoll, events, EVENTS_MAX, -1);

		if (n < 0 && errno != EINTR)
			return err_set(e, errno, "wait for events");
		for (int i = 0; i < n; i++)
			dispatch(w, &events[i]);
		advance_stop(w);
	}
	return 0;
}

/* --- start ----------------------------------------------------------------------------------- */

/* Locks the file, with retries: after a warden was killed, a VM process that it had just cloned
 * holds the lock until the exec. */
static int lock_soon(int fd)
{
	const struct timespec pause = {.tv_nsec = 50 * 1000000};

	for (int i = 0; i < LOCK_TRIES; i++) {
		if (flock(fd, LOCK_EX | LOCK_NB) == 0)
			return 0;
		if (errno != EWOULDBLOCK)
			return -1;
		nanosleep(&pause, NULL);
	}
	return flock(fd, LOCK_EX | LOCK_NB);
}

/* Prevents two wardens from using the same slots. */
static int lock_run_dir(struct warden *w, struct err *e)
{
	char path[CONFIG_PATH_MAX + 8];
	int dir = directory_for_root(w->config->run_dir, w->account.gid, e);

	if (dir < 0)
		return err_context(e, "run_dir");
	close_fd(&dir);
	snprintf(path, sizeof(path), "%s/lock", w->config->run_dir);
	w->lock = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (w->lock < 0)
		return err_set(e, errno, "open %s", path);
	if (lock_soon(w->lock) == 0)
		return 0;
	int error = errno;
	close_fd(&w->lock); /* so that finish() does not remove run_dir */
	if (error == EWOULDBLOCK)
		return err_say(e, EEXIST, "another rametd uses run_dir %s", w->config->run_dir);
	return err_set(e, error, "lock %s", path);
}

static int open_loop(struct warden *w, struct err *e)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
		return err_set(e, errno, "block signals");
	w->epoll = epoll_create1(EPOLL_CLOEXEC);
	w->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	w->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (w->epoll < 0 || w->signals < 0 || w->timer < 0)
		return err_set(e, errno, "create the event loop");
	int r = warden_watch(w, w->signals, EPOLLIN, SOURCE_SIGNALS, 0, e);
	return r < 0 ? r : warden_watch(w, w->timer, EPOLLIN, SOURCE_TIMER, 0, e);
}

int warden_account(struct account *out, const struct config *c, struct err *e)
{
	int r = account_find(out, c->user, e);
	if (r < 0)
		return r;
	/* The uid after those of all slots is for ramet-notify. */
	if (out->uid >= c->vm_uid_base && out->uid - c->vm_uid_base <= WARDEN_SLOTS_MAX)
		return err_say(e, EINVAL,
			       "user %s has uid %u, which is reserved for VM processes: choose "
			       "another account or another vm_uid_base",
			       c->user, out->uid);
	return 0;
}

static void journals_path(char path[static CONFIG_PATH_MAX + 16], const struct config *c)
{
	snprintf(path, CONFIG_PATH_MAX + 16, "%s/journals", c->run_dir);
}

/* Prepares a directory of the service; `setting` names it in errors. */
static int prepare(const struct warden *w, const char *path, const char *setting, struct err *e)
{
	scoped_fd int fd = directory_for_account(path, w->account, e);

	return fd < 0 ? err_context(e, "%s", setting) : 0;
}

/* Raises the limit of open files: three for each VM, its network namespace, and some more. */
static void raise_files(const struct config *c)
{
	rlim_t wanted = 256 + 4ull * c->max_vms;
	struct rlimit now;

	if (getrlimit(RLIMIT_NOFILE, &now) < 0 || now.rlim_cur >= wanted)
		return;
	now.rlim_cur = wanted;
	if (now.rlim_max < wanted)
		now.rlim_max = wanted;
	setrlimit(RLIMIT_NOFILE, &now);
}

/* Returns the maximum memory of all VMs and of rametd, in bytes. */
static uint64_t memory_max(const struct config *c)
{
	uint64_t host = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t kept = host / 64 > KEPT_LEAST ? host / 64 : KEPT_LEAST;

	return c->memory_mib ? (uint64_t)c->memory_mib << 20 : host - kept;
}

static void note_crash(const struct warden_options *options)
{
	uint32_t type, slot;

	if (record_take_over(options->record, options->crashed, &type, &slot))
		log_error("the previous warden crashed while it served request type %u for slot %u",
			  type, slot);
}

/* Locks what only one warden may use, and makes what the jails need. */
static int open_all(struct warden *w, struct err *e)
{
	const char *const *controllers = w->options->controllers;

	if (lock_run_dir(w, e) < 0 || open_loop(w, e) < 0 ||
	    jails_open(&w->jails, w->config, &w->tree, &w->net, w->account, e) < 0 ||
	    jails_check(&w->jails, e) < 0 ||
	    cgroup_tree_open(&w->tree, w->config->cgroup, w->options->supervisor,
			     controllers ? controllers : cgroup_controllers, e) < 0)
		return e->code;
	if (!w->tree.io)
		log_info("cgroup %s was not given the io controller: on busy disks no VM "
			 "has priority over another; disk_bytes_s and disk_ops_s still limit each",
			 w->tree.path);
	if (cgroup_limit_all(&w->tree, memory_max(w->config), w->config->cpu_weight, e) < 0)
		return e->code;
	return net_open(&w->net, w->config, w->account.uid, e);
}

static int start(struct warden *w, struct err *e)
{
	char journals[CONFIG_PATH_MAX + 16];

	umask(077);
	note_crash(w->options);
	raise_files(w->config);
	journals_path(journals, w->config);
	if (privileges_bound(&privileges_warden, e) < 0 ||
	    privileges_keep(&privileges_warden, e) < 0 ||
	    warden_account(&w->account, w->config, e) < 0 || open_all(w, e) < 0)
		return e->code;
	/* The service writes the journals for its next instance. */
	if (prepare(w, w->config->state_dir, "state_dir", e) < 0 ||
	    prepare(w, journals, "run_dir", e) < 0 || service_init(w, e) < 0 ||
	    slots_init(w, e) < 0 || notifier_init(w, e) < 0)
		return e->code;
	return service_start(w, e);
}

static void remove_run_dir(const struct config *c)
{
	char path[CONFIG_PATH_MAX + 16];

	snprintf(path, sizeof(path), "%s/admin.sock", c->run_dir);
	unlink(path);
	journals_path(path, c);
	rmdir(path);
	snprintf(path, sizeof(path), "%s/lock", c->run_dir);
	unlink(path);
	rmdir(c->run_dir);
}

/* Closes everything, and removes what is empty. VMs that are still alive (adopted or unkillable)
 * are left as they are. */
static void finish(struct warden *w)
{
	service_fini(w);
	notifier_fini(w);
	slots_fini(w);
	net_close(&w->net, w->taken == 0);
	jails_close(&w->jails, true);
	cgroup_tree_close(&w->tree, true);
	if (w->lock >= 0)
		remove_run_dir(w->config);
	close_fd(&w->timer);
	close_fd(&w->signals);
	close_fd(&w->epoll);
	close_fd(&w->lock);
}

int warden_run(const struct warden_options *options, struct err *e)
{
	struct warden w = {
		.options = options,
		.config = options->config,
		.tree = {.base = -1, .top = -1},
		.jails = {.vm_dir = -1, .program = -1},
		.net = {.ns = -1, .nft = -1},
		.lock = -1,
		.epoll = -1,
		.signals = -1,
		.timer = -1,
		.config_fd = -1,
		.admin_fd = -1,
		.service = {.pidfd = -1, .socket = -1},
		.notifier = {.events = {-1, -1},
			     .counters = -1,
			     .spans = {-1, -1},
			     .program = -1,
			     .config = -1,
			     .pidfd = -1,
			     .timer = -1},
	};

	int r = start(&w, e);
	if (r == 0)
		r = loop(&w, e);
	if (r == 0 && w.result < 0)
		r = err_say(e, -w.result, "%s",
			    w.result == -ESRCH
				    ? "the service could not start (see its log lines above)"
				    : "stopped, but some VMs are left");
	finish(&w);
	return r;
}
