// SPDX-License-Identifier: Apache-2.0
#include "guest/files/worker.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "guest/child.h"
#include "guest/files/staged.h"
#include "guest/files/worker-io.h"
#include "guest/log-console.h"

#define CHILD_FD 3

static struct worker {
	struct watch life;		       /* its pidfd */
	pid_t pid;			       /* 0: this one is free */
	struct conn *conn;		       /* NULL: gone, or there was none */
} workers[WORKER_COUNT_MAX + AGENT_WATCH_MAX]; /* the last ones are for watches */

/* One for each of the workers, in memory that they share with the agent; NULL before the first
 * start. */
static struct staged_file *staged;
static struct staged_file *own_staged; /* in a worker */

static void (*on_free)(void);

void worker_init(void (*the_on_free)(void))
{
	on_free = the_on_free;
}

static struct worker *find_free(bool watches)
{
	size_t first = watches ? WORKER_COUNT_MAX : 0;
	size_t end = watches ? ARRAY_LEN(workers) : WORKER_COUNT_MAX;

	for (size_t i = first; i < end; i++)
		if (!workers[i].pid)
			return &workers[i];
	return NULL;
}

bool worker_is_free(void)
{
	return find_free(false) != NULL;
}

static void remove_run(const void *path)
{
	unlink(path);
}

/* Removes the temporary file that an ended worker has left, in another worker if possible, since
 * unlinking a big file takes a while. */
static void remove_left(struct staged_file *f)
{
	char path[PATH_MAX];
	const struct worker_job job = {.run = remove_run, .request = path};
	struct err e;

	if (f->state != STAGED_OPEN)
		return;
	snprintf(path, sizeof(path), "%.*s", PATH_MAX - 1, f->temporary);
	f->state = STAGED_NEW;
	if (worker_start(NULL, &job, &e) < 0)
		unlink(path);
}

static void on_life(struct watch *watch, uint32_t events)
{
	struct worker *w = container_of(watch, struct worker, life);
	struct conn *c = w->conn;
	int status;

	if (waitpid(w->pid, &status, WNOHANG) != w->pid)
		return;
	watch_close(&w->life);
	*w = (struct worker){0};
	remove_left(&staged[w - workers]);
	if (c && WIFEXITED(status) && WEXITSTATUS(status) == 0) {
		conn_become(c, CONN_IDLE);
	} else if (c) {
		log_console("a worker for files ended with wait status 0x%x: connection closed",
			    status);
		conn_drop(c);
	}
	on_free();
}

static int share_staged(struct err *e)
{
	void *p = staged;

	if (!p)
		p = mmap(NULL, ARRAY_LEN(workers) * sizeof(*staged), PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return err_set(e, errno, "share memory with workers for files");
	staged = p;
	return 0;
}

struct staged_file *worker_staged(void)
{
	return own_staged;
}

__attribute__((noreturn)) static void child(const struct conn *c, const struct worker_job *job,
					    pid_t agent)
{
	struct rlimit files;

	child_begin(agent, "500");
	/* Keeps no other connection, which would stay open after the agent closes it. */
	if (c && dup2(c->watch.fd, CHILD_FD) < 0)
		_exit(126);
	if (close_range(CHILD_FD + (c ? 1 : 0), ~0u, 0) < 0)
		_exit(126);
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	umask(0);
	if (c)
		worker_io_init(CHILD_FD, c->out + c->out_pos, c->out_len - c->out_pos);
	job->run(job->request);
	_exit(0);
}

int worker_start(struct conn *c, const struct worker_job *job, struct err *e)
{
	struct worker *w = find_free(job->watches);
	pid_t agent = getpid();

	if (!w && job->watches)
		return err_say(e, EAGAIN, "%d watches are in progress, the maximum",
			       AGENT_WATCH_MAX);
	if (!w)
		return err_say(e, EAGAIN, "%d operations on files are running, the maximum",
			       WORKER_COUNT_MAX);
	int bad = share_staged(e);
	if (bad)
		return bad;
	own_staged = &staged[w - workers];
	own_staged->state = STAGED_NEW;
	pid_t pid = fork();
	if (pid < 0)
		return err_set(e, errno, "fork for an operation on files");
	if (pid == 0)
		child(c, job, agent);
	scoped_fd int life = (int)syscall(SYS_pidfd_open, pid, 0);
	w->life.on_event = on_life;
	if (life < 0 || watch_add(&w->life, life, EPOLLIN | EPOLLET) < 0) {
		int saved = errno;
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		/* The worker may have begun to answer, so the agent cannot answer. */
		if (c)
			conn_drop(c);
		return err_set(e, saved, "watch a process for an operation on files");
	}
	take_fd(&life);
	w->pid = pid;
	w->conn = c;
	if (!c)
		return 0;
	conn_hand_over(c);
	conn_become(c, CONN_WORKER);
	return 0;
}

void worker_on_gone(struct conn *c)
{
	for (struct worker *w = workers; w < workers + ARRAY_LEN(workers); w++)
		if (w->pid && w->conn == c) {
			w->conn = NULL;
			kill(w->pid, SIGKILL);
		}
}
