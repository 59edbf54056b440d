// SPDX-License-Identifier: Apache-2.0
#include "guest/lister.h"

#include <errno.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "guest/child.h"
#include "guest/say.h"
#include "guest/tree.h"

#define CHILD_FD 3

static struct lister {
	struct watch life; /* its pidfd */
	pid_t pid;	   /* 0: this one is free */
	struct conn *conn; /* NULL: gone */
} listers[LISTER_COUNT_MAX];

static void on_life(struct watch *w, uint32_t events)
{
	struct lister *l = container_of(w, struct lister, life);
	struct conn *c = l->conn;
	int status;

	if (waitpid(l->pid, &status, WNOHANG) != l->pid)
		return;
	watch_del(&l->life);
	close_fd(&l->life.fd);
	*l = (struct lister){0};
	if (!c)
		return;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
		conn_become(c, CONN_IDLE);
		return;
	}
	say("the listing of a tree ended with status 0x%x: connection closed", status);
	conn_drop(c);
}

__attribute__((noreturn)) static void child(const struct conn *c, const struct tree_request *r,
					    pid_t agent)
{
	struct rlimit files;

	child_begin(agent, "500");
	/* Others' connections must not stay open here when the agent closes them. */
	if (dup2(c->watch.fd, CHILD_FD) < 0 || close_range(CHILD_FD + 1, ~0u, 0) < 0)
		_exit(126);
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	tree_serve(r, CHILD_FD, c->out + c->out_pos, c->out_len - c->out_pos);
}

int lister_start(struct conn *c, const struct tree_request *r, struct err *e)
{
	struct lister *l = listers;
	pid_t agent = getpid();

	while (l < listers + LISTER_COUNT_MAX && l->pid)
		l++;
	if (l == listers + LISTER_COUNT_MAX)
		return err_say(e, EAGAIN, "%d trees are being listed, which is the limit",
			       LISTER_COUNT_MAX);
	pid_t pid = fork();
	if (pid < 0)
		return err_set(e, errno, "list a tree: fork");
	if (pid == 0)
		child(c, r, agent);
	scoped_fd int life = (int)syscall(SYS_pidfd_open, pid, 0);
	l->life.on_event = on_life;
	if (life < 0 || watch_add(&l->life, life, EPOLLIN | EPOLLET) < 0) {
		int saved = errno;
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		/* It may have begun to answer: no more can be said here. */
		conn_drop(c);
		return err_set(e, saved, "list a tree: watch it");
	}
	take_fd(&life);
	l->pid = pid;
	l->conn = c;
	conn_hand_over(c);
	conn_become(c, CONN_TREE);
	return 0;
}

void lister_on_gone(struct conn *c)
{
	for (struct lister *l = listers; l < listers + LISTER_COUNT_MAX; l++)
		if (l->pid && l->conn == c) {
			l->conn = NULL;
			kill(l->pid, SIGKILL);
		}
}
