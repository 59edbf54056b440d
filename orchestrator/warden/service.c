// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/warden/warden-internal.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/elements.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/num.h"
#include "orchestrator/warden/program.h"
#include "orchestrator/warden/request.h"
#include "orchestrator/warden/view.h"

#define RESTART_FIRST_MS 100
#define RESTART_MOST_MS	 10000
#define RESTART_SETUP_MS 60000 /* after a setup failure, which an operator must fix */
#define LIVED_WELL_MS	 60000
#define SERVICE_FILES	 1048576 /* one for each client and each VM connection */
#define ADMIN_BACKLOG	 16

/* A packet for the service that did not fit into the socket yet. */
struct packet {
	struct list node;
	struct warden_msg msg;
};

/* --- start ----------------------------------------------------------------------------------- */

/* The paths that the service sees of /run: all that the settings name. */
struct kept_paths {
	char text[VIEW_PATHS_MAX][2 * CONFIG_PATH_MAX + 2];
	const char *all[VIEW_PATHS_MAX];
	size_t n;
};

static void keep_path(struct kept_paths *k, const char *path)
{
	snprintf(k->text[k->n], sizeof(k->text[0]), "%s", path);
	k->all[k->n] = k->text[k->n];
	k->n++;
}

/* Keeps the folder of a file, which may be replaced; or only the file if it is directly in /run. */
static void keep_around(struct kept_paths *k, const char *file)
{
	keep_path(k, file);
	char *path = k->text[k->n - 1], *slash = strrchr(path, '/');
	if (slash && slash - path > (ptrdiff_t)strlen("/run"))
		*slash = '\0';
}

static void find_kept(struct kept_paths *k, const struct config *c)
{
	const char *const files[] = {c->kernel,	   c->initramfs,   c->rootfs,	c->warmup,
				     c->tls_cert,  c->tls_key,	   c->fleet_ca, c->fleet_cert,
				     c->fleet_key, c->fleet_id_key};
	_Static_assert(4 + 2 * ARRAY_LEN(files) <= VIEW_PATHS_MAX, "all paths fit");

	k->n = 0;
	keep_path(k, c->run_dir);
	keep_path(k, c->state_dir);
	keep_path(k, c->templates_dir);
	keep_path(k, c->fleet_dir);
	for (size_t i = 0; i < ARRAY_LEN(files); i++) {
		scoped_free char *real = realpath(files[i], NULL);

		keep_around(k, files[i]);
		if (real && strcmp(real, files[i]) != 0)
			keep_around(k, real);
	}
}

static int clone_service(struct warden *w, int socket, struct err *e)
{
	const int fds[] = {socket,
			   w->config_fd,
			   w->admin_fd,
			   w->notifier.events[0],
			   w->notifier.counters,
			   w->notifier.spans[0]};
	struct kept_paths kept;

	find_kept(&kept, w->config);
	const struct program p = {
		.name = "service",
		.argv = w->options->service_argv,
		.account = w->account,
		/* Every sandbox waits for the service, so guests must not delay it. */
		.limits = {.weight = CGROUP_WEIGHT_MOST, .reclaim = CGROUP_RECLAIM_LAST},
		.files = SERVICE_FILES,
		.exe = w->options->service,
		.fds = fds,
		.n_fds = ARRAY_LEN(fds),
		.kept = kept.all,
		.n_kept = kept.n,
		.setup_exit = WARDEN_SETUP_EXIT,
	};

	_Static_assert(WARDEN_SOCKET_FD == PROGRAM_FIRST_FD &&
			       WARDEN_SOCKET_FD + ARRAY_LEN(fds) - 1 == WARDEN_SPANS_FD,
		       "descriptor numbers that the service expects");
	w->service.pidfd = program_start(&w->tree, &p, e);
	return w->service.pidfd < 0 ? w->service.pidfd : 0;
}

int service_start(struct warden *w, struct err *e)
{
	struct service *s = &w->service;
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
		return err_set(e, errno, "create a socket pair for the service");
	scoped_fd int ours = ends[0];
	scoped_fd int theirs = ends[1];
	int r = clone_service(w, theirs, e);
	if (r == 0)
		r = warden_watch(w, s->pidfd, EPOLLIN, SOURCE_SERVICE_PID, 0, e);
	if (r == 0)
		r = warden_watch(w, ours, EPOLLIN, SOURCE_SERVICE_SOCKET, 0, e);
	if (r < 0) {
		service_signal(w, SIGKILL);
		close_fd(&s->pidfd);
		return r;
	}
	s->socket = take_fd(&ours);
	s->state = SERVICE_RUNNING;
	s->generation++;
	s->started_ms = warden_now_ms();
	slots_tell_dead(w);
	return 0;
}

void service_signal(struct warden *w, int signal)
{
	if (w->service.pidfd >= 0)
		syscall(SYS_pidfd_send_signal, w->service.pidfd, signal, NULL, 0);
}

/* --- packets to the service ------------------------------------------------------------------ */

static void drop_queue(struct service *s)
{
	list_drain_of (p, struct packet, node, &s->queue) {
		list_del(&p->node);
		free(p);
	}
}

static void disconnect(struct warden *w)
{
	/* A VM process that has not executed its program yet may hold a copy of the socket. Then
	 * closing alone leaves the socket in the epoll set, and its events would be taken for
	 * events of the next socket. */
	if (w->service.socket >= 0)
		epoll_ctl(w->epoll, EPOLL_CTL_DEL, w->service.socket, NULL);
	close_fd(&w->service.socket);
	drop_queue(&w->service);
}

/* Returns 0, or -EAGAIN when the socket is full. A packet to a broken socket counts as sent. */
static int send_now(struct service *s, const struct warden_msg *m)
{
	if (send(s->socket, m, sizeof(*m), MSG_DONTWAIT | MSG_NOSIGNAL) < 0 &&
	    (errno == EAGAIN || errno == ENOBUFS))
		return -EAGAIN;
	return 0;
}

/* While packets wait, no request is read, which bounds the queue by the requests in flight. */
static void watch_socket(struct warden *w)
{
	struct service *s = &w->service;
	struct epoll_event ev = {
		.events = list_empty(&s->queue) ? EPOLLIN : EPOLLOUT,
		.data.u64 = (uint64_t)SOURCE_SERVICE_SOCKET << 32,
	};

	epoll_ctl(w->epoll, EPOLL_CTL_MOD, s->socket, &ev);
}

static void send_packet(struct warden *w, const struct warden_msg *m)
{
	struct service *s = &w->service;

	if (s->socket < 0)
		return;
	if (list_empty(&s->queue) && send_now(s, m) == 0)
		return;
	struct packet *p = malloc(sizeof(*p));
	if (!p) { /* this service would wait for the answer forever; the next one asks again */
		log_error("not enough memory for a packet to the service: restarting the service");
		service_signal(w, SIGKILL);
		return;
	}
	p->msg = *m;
	list_add_tail(&s->queue, &p->node);
	watch_socket(w);
}

static void flush_queue(struct warden *w)
{
	struct service *s = &w->service;

	list_drain_of (p, struct packet, node, &s->queue) {
		if (send_now(s, &p->msg) < 0)
			return;
		list_del(&p->node);
		free(p);
	}
	watch_socket(w);
}

void service_reply(struct warden *w, uint32_t seq, uint32_t slot, int error, uint64_t value,
		   const char *text)
{
	struct warden_msg m = {
		.version = WARDEN_VERSION, .type = WARDEN_REPLY, .seq = seq, .slot = slot};

	m.reply.error = error;
	m.reply.value = error ? 0 : value;
	if (text)
		snprintf(m.reply.text, sizeof(m.reply.text), "%.*s", WARDEN_TEXT_MAX - 1, text);
	send_packet(w, &m);
}

void service_tell_exited(struct warden *w, uint32_t slot, int status)
{
	struct warden_msg m = {.version = WARDEN_VERSION, .type = WARDEN_EXITED, .slot = slot};

	m.exited.status = status;
	send_packet(w, &m);
}

/* --- requests from the service --------------------------------------------------------------- */

/* Refuses a request that ended the warden twice. */
static void refuse(struct warden *w, const struct warden_msg *m)
{
	struct err e;

	err_say(&e, ENOTRECOVERABLE,
		"slot %u: this request (type %u) crashed the warden twice, so it is refused until "
		"rametd is started again or upgraded; the log has the crashes",
		m->slot, m->type);
	log_error("%s", e.text);
	service_reply(w, m->seq, m->slot, e.code, 0, e.text);
}

static void serve(struct warden *w, const void *packet, size_t len)
{
	struct warden_msg m;
	struct err e;
	uint32_t seq;

	if (request_check(&m, &seq, packet, len, w->config->max_vms, &e) < 0) {
		log_warn("refused a request of the service: %s", e.text);
		if (seq)
			service_reply(w, seq, 0, e.code, 0, e.text);
		return;
	}
	if (w->phase == PHASE_CLEANING)
		service_reply(w, seq, m.slot, -ESHUTDOWN, 0, "rametd is stopping");
	else if (record_refuses(w->options->record, &m))
		refuse(w, &m);
	else {
		record_begin(w->options->record, &m);
		slots_serve(w, &m);
		record_end(w->options->record);
	}
}

/* Descriptors sent along are not received: the kernel closes them. */
static void receive(struct warden *w)
{
	struct service *s = &w->service;
	struct warden_msg m;

	while (s->socket >= 0 && list_empty(&s->queue)) {
		ssize_t n = recv(s->socket, &m, sizeof(m), MSG_DONTWAIT | MSG_TRUNC);

		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (n <= 0) { /* the service is exiting, which a separate event reports */
			disconnect(w);
			return;
		}
		serve(w, &m, (size_t)n);
	}
}

void service_on_socket(struct warden *w, uint32_t events)
{
	if (w->service.socket < 0)
		return;
	if (!list_empty(&w->service.queue) && !(events & (EPOLLHUP | EPOLLERR)))
		flush_queue(w);
	else if (events & (EPOLLHUP | EPOLLERR) && !list_empty(&w->service.queue))
		disconnect(w);
	else
		receive(w);
}

/* --- end of the service ---------------------------------------------------------------------- */

static uint64_t pause_ms(struct service *s, const siginfo_t *info)
{
	bool setup = info->si_code == CLD_EXITED && info->si_status == WARDEN_SETUP_EXIT;

	if (warden_now_ms() - s->started_ms > LIVED_WELL_MS)
		s->pause_ms = 0;
	s->pause_ms = backoff_next(s->pause_ms, RESTART_FIRST_MS,
				   setup ? RESTART_SETUP_MS : RESTART_MOST_MS);
	return s->pause_ms;
}

static void log_end(const siginfo_t *info)
{
	if (info->si_code == CLD_EXITED && info->si_status == 0)
		log_info("the service has ended");
	else if (info->si_code == CLD_EXITED)
		log_error("the service has ended with status %d", info->si_status);
	else
		log_error("the service was killed by signal %d (%s)%s", info->si_status,
			  strsignal(info->si_status),
			  info->si_status == SIGSYS
				  ? ": a system call that seccomp.c does not allow"
				  : "");
}

/* Returns true when a restart cannot help: the service logged why it cannot start, and no VM
 * depends on it. */
static bool is_hopeless(const struct warden *w, const siginfo_t *info)
{
	return info->si_code == CLD_EXITED && info->si_status == WARDEN_SETUP_EXIT &&
	       w->service.generation == 1 && w->taken == 0;
}

void service_on_pid(struct warden *w)
{
	struct service *s = &w->service;
	siginfo_t info;

	if (!program_ended(&s->pidfd, &info))
		return;
	disconnect(w);
	log_end(&info);
	if (w->phase == PHASE_SERVING && is_hopeless(w, &info)) {
		w->result = -ESRCH;
		w->phase = PHASE_STOPPING;
	}
	if (w->phase == PHASE_SERVING) {
		uint64_t ms = pause_ms(s, &info);

		s->state = SERVICE_WAITING;
		log_info("restarting the service in %llu ms; the VMs keep running",
			 (unsigned long long)ms);
		warden_timer(w, ms);
		return;
	}
	s->state = SERVICE_ENDED;
}

/* --- setup and teardown ---------------------------------------------------------------------- */

int seal_config(const struct config *config, struct err *e)
{
	scoped_fd int fd = memfd_create("config", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0 || write(fd, config, sizeof(*config)) != (ssize_t)sizeof(*config))
		return err_set(e, errno, "write the settings for the service");
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		return err_set(e, errno, "seal the settings for the service");
	return take_fd(&fd);
}

/* Opens the admin socket, in a directory that only root can write to. It is kept across restarts of
 * the service, so that operators' connections wait instead of failing. */
static int open_admin(const struct config *config, struct err *e)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	scoped_fd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	int used = snprintf(at.sun_path, sizeof(at.sun_path), "%s/admin.sock", config->run_dir);
	if (used >= (int)sizeof(at.sun_path)) /* config.c limits the length of run_dir */
		return err_set(e, ENAMETOOLONG, "run_dir %s", config->run_dir);
	unlink(at.sun_path);
	if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof(at)) < 0 ||
	    chmod(at.sun_path, 0600) < 0 || listen(fd, ADMIN_BACKLOG) < 0)
		return err_set(e, errno, "listen on %s", at.sun_path);
	return take_fd(&fd);
}

int service_init(struct warden *w, struct err *e)
{
	w->service = (struct service){.state = SERVICE_WAITING, .pidfd = -1, .socket = -1};
	list_init(&w->service.queue);
	struct config without_secret = *w->config;
	explicit_bzero(without_secret.webhook_secret, sizeof(without_secret.webhook_secret));
	w->config_fd = seal_config(&without_secret, e);
	if (w->config_fd < 0)
		return w->config_fd;
	w->admin_fd = open_admin(w->config, e);
	if (w->admin_fd < 0)
		return w->admin_fd;
	/* A service of a previous warden may still be exiting. */
	return cgroup_empty(&w->tree, "service", e);
}

void service_fini(struct warden *w)
{
	if (w->service.queue.next)
		disconnect(w);
	close_fd(&w->service.pidfd);
	close_fd(&w->config_fd);
	close_fd(&w->admin_fd);
}
