// SPDX-License-Identifier: Apache-2.0
#include "bench/stand-ins.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/fd.h"
#include "bench/stand-in.h"
#include "proto/warden.h"

/* With a limit of 20,000 descriptors, the processes have room for 13,000 VMs. */
#define PROCESSES 2

struct stand_ins {
	pthread_mutex_t lock;
	int wake;    /* eventfd: `next` has changed */
	int next;    /* the warden's end of the socketpair of the next service; -1: none */
	int service; /* the same of the running service; -1: none */
	int processes[PROCESSES];
	pthread_t thread;
};

/* --- the processes ---------------------------------------------------------------------------- */

static void wait_forever(void)
{
	for (;;)
		pause();
}

static pid_t fork_stand_in(void)
{
	pid_t parent = getpid(), pid = fork();

	if (pid != 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	return 0;
}

/* Starts the process that all VMs report as theirs. It has few threads, as a VM process does:
 * reading /proc/PID/stat takes longer the more threads there are. */
static pid_t one_vm_process(void)
{
	pid_t pid = fork_stand_in();

	if (pid == 0)
		wait_forever();
	return pid;
}

static int start_process(const char *run_dir, pid_t vm)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -1;
	pid_t pid = fork_stand_in();
	if (pid == 0) {
		close(pair[0]);
		stand_in_serve(run_dir, pair[1], vm);
		_exit(1);
	}
	close(pair[1]);
	if (pid < 0)
		close_fd(&pair[0]);
	return pair[0];
}

/* --- the warden ------------------------------------------------------------------------------- */

static void change_service(struct stand_ins *s)
{
	eventfd_t ignored;

	eventfd_read(s->wake, &ignored);
	pthread_mutex_lock(&s->lock);
	close_fd(&s->service);
	s->service = take_fd(&s->next);
	pthread_mutex_unlock(&s->lock);
}

static void from_service(struct stand_ins *s)
{
	struct warden_msg msg;

	if (recv(s->service, &msg, sizeof(msg), 0) == sizeof(msg))
		send(s->processes[msg.slot % PROCESSES], &msg, sizeof(msg), MSG_NOSIGNAL);
	else
		close_fd(&s->service);
}

/* A message that arrives while there is no service is lost, as it is with the warden. */
static void from_process(struct stand_ins *s, int fd)
{
	struct warden_msg msg;

	if (recv(fd, &msg, sizeof(msg), 0) != sizeof(msg))
		_exit(1); /* the process has died */
	if (s->service >= 0)
		send(s->service, &msg, sizeof(msg), MSG_NOSIGNAL);
}

static bool pass_on(struct stand_ins *s)
{
	struct pollfd p[PROCESSES + 2] = {{s->wake, POLLIN, 0}, {s->service, POLLIN, 0}};

	for (int i = 0; i < PROCESSES; i++)
		p[i + 2] = (struct pollfd){s->processes[i], POLLIN, 0};
	if (poll(p, PROCESSES + 2, -1) < 0)
		return errno == EINTR;
	if (p[0].revents)
		change_service(s);
	else if (p[1].revents)
		from_service(s);
	for (int i = 0; i < PROCESSES; i++)
		if (p[i + 2].revents)
			from_process(s, s->processes[i]);
	return true;
}

static void *warden_main(void *arg)
{
	while (pass_on(arg))
		;
	return NULL;
}

int stand_ins_attach(struct stand_ins *s)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -1;
	pthread_mutex_lock(&s->lock);
	close_fd(&s->next);
	s->next = pair[0];
	pthread_mutex_unlock(&s->lock);
	eventfd_write(s->wake, 1);
	return pair[1];
}

struct stand_ins *stand_ins_new(const char *run_dir)
{
	struct stand_ins *s = calloc(1, sizeof(*s));
	pid_t vm = one_vm_process();

	char path[108]; /* the longest path of a socket */

	if (!s || vm < 0)
		return NULL;
	snprintf(path, sizeof(path), "%s/vm", run_dir);
	mkdir(path, 0700);
	pthread_mutex_init(&s->lock, NULL);
	s->service = s->next = -1;
	for (int i = 0; i < PROCESSES; i++) {
		s->processes[i] = start_process(run_dir, vm);
		if (s->processes[i] < 0)
			return NULL;
	}
	s->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	errno = s->wake < 0 ? errno : pthread_create(&s->thread, NULL, warden_main, s);
	return errno ? NULL : s;
}
