// SPDX-License-Identifier: Apache-2.0
#include "vmm/dev/loop.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "base/clock.h"
#include "base/fd.h"

#define EVENTS_MAX 32

struct loop_watch {
	struct loop *loop;
	int fd;
	bool muted; /* the fd is not in the epoll set */
	bool dead;  /* deleted; freed once no event of this turn can name it */
	loop_fn *fn;
	void *arg;
	struct loop_watch *next_dead;
};

struct loop {
	int epoll_fd;
	int stop_fd; /* eventfd: wakes the loop to end */
	bool stopped;
	struct loop_timer *timers; /* soonest first */
	struct loop_watch *dead;
};

int loop_new(struct loop **out, struct err *e)
{
	scoped_fd int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	scoped_fd int stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	struct epoll_event ev = {.events = EPOLLIN};
	struct loop *l;

	if (epoll_fd < 0 || stop_fd < 0 || epoll_ctl(epoll_fd, EPOLL_CTL_ADD, stop_fd, &ev) < 0)
		return err_set(e, errno, "make the event loop");
	l = calloc(1, sizeof(*l));
	if (!l)
		return err_set(e, ENOMEM, "make the event loop");
	l->epoll_fd = take_fd(&epoll_fd);
	l->stop_fd = take_fd(&stop_fd);
	*out = l;
	return 0;
}

static void bury_dead(struct loop *l)
{
	struct loop_watch *w, *next;

	for (w = l->dead; w; w = next) {
		next = w->next_dead;
		free(w);
	}
	l->dead = NULL;
}

void loop_free(struct loop *l)
{
	if (!l)
		return;
	bury_dead(l);
	close_fd(&l->epoll_fd);
	close_fd(&l->stop_fd);
	free(l);
}

void loop_stop(struct loop *l)
{
	uint64_t one = 1;

	if (write(l->stop_fd, &one, sizeof(one)) < 0)
		return; /* the counter is full: the loop is being told already */
}

/* Milliseconds until the first timer is due, rounded up so that it never comes early. */
static int timeout_to_first(const struct loop *l, int timeout_ms)
{
	uint64_t now, ms;

	if (!l->timers)
		return timeout_ms;
	now = now_ns();
	if (l->timers->due_ns <= now)
		return 0;
	ms = (l->timers->due_ns - now + 999999) / 1000000;
	if (ms > INT_MAX)
		ms = INT_MAX;
	return timeout_ms < 0 || (int)ms < timeout_ms ? (int)ms : timeout_ms;
}

static int run_due_timers(struct loop *l)
{
	uint64_t now = l->timers ? now_ns() : 0;
	int ran = 0;

	while (l->timers && l->timers->due_ns <= now) {
		struct loop_timer *t = l->timers;

		l->timers = t->next;
		t->due_ns = 0;
		t->fn(t->arg);
		ran++;
	}
	return ran;
}

int loop_turn(struct loop *l, int timeout_ms)
{
	struct epoll_event ev[EVENTS_MAX];
	int ran = 0;
	int n = epoll_wait(l->epoll_fd, ev, EVENTS_MAX, timeout_to_first(l, timeout_ms));

	for (int i = 0; i < n; i++) {
		struct loop_watch *w = ev[i].data.ptr;

		if (!w) {
			uint64_t count;

			l->stopped = read(l->stop_fd, &count, sizeof(count)) > 0;
		} else if (!w->dead && !w->muted) {
			w->fn(w->arg, ev[i].events);
			ran++;
		}
	}
	bury_dead(l);
	return ran + run_due_timers(l);
}

void loop_run(struct loop *l)
{
	l->stopped = false;
	while (!l->stopped)
		loop_turn(l, -1);
}

int loop_watch_add(struct loop *l, int fd, uint32_t events, loop_fn *fn, void *arg,
		   struct loop_watch **out, struct err *e)
{
	struct loop_watch *w = calloc(1, sizeof(*w));
	struct epoll_event ev = {.events = events, .data.ptr = w};

	if (!w)
		return err_set(e, ENOMEM, "watch a descriptor");
	*w = (struct loop_watch){.loop = l, .fd = fd, .fn = fn, .arg = arg};
	if (epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, fd, &ev) < 0) {
		int rc = err_set(e, errno, "watch descriptor %d", fd);

		free(w);
		return rc;
	}
	*out = w;
	return 0;
}

void loop_watch_set(struct loop_watch *w, uint32_t events)
{
	struct epoll_event ev = {.events = events, .data.ptr = w};

	/* Can fail for want of memory only when a muted watch comes back: then try in vain is all
	 * there is, and the owner's time limits end what waits for it. */
	epoll_ctl(w->loop->epoll_fd, w->muted ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, w->fd, &ev);
	w->muted = false;
}

void loop_watch_mute(struct loop_watch *w)
{
	if (!w->muted)
		epoll_ctl(w->loop->epoll_fd, EPOLL_CTL_DEL, w->fd, NULL);
	w->muted = true;
}

void loop_watch_del(struct loop_watch *w)
{
	if (!w)
		return;
	loop_watch_mute(w);
	w->dead = true;
	w->next_dead = w->loop->dead;
	w->loop->dead = w;
}

void loop_timer_clear(struct loop *l, struct loop_timer *t)
{
	if (!t->due_ns)
		return;
	for (struct loop_timer **p = &l->timers; *p; p = &(*p)->next) {
		if (*p == t) {
			*p = t->next;
			break;
		}
	}
	t->due_ns = 0;
}

void loop_timer_set(struct loop *l, struct loop_timer *t, uint64_t after_ns)
{
	struct loop_timer **p = &l->timers;

	loop_timer_clear(l, t);
	t->due_ns = now_ns() + after_ns;
	while (*p && (*p)->due_ns <= t->due_ns)
		p = &(*p)->next;
	t->next = *p;
	*p = t;
}
