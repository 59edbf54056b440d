// SPDX-License-Identifier: Apache-2.0
#include "vmm/dev/event-loop.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/epoll.h>

#include "base/clock.h"
#include "base/fd.h"

#define EVENTS_MAX 32

struct event_watch {
	struct event_loop *loop;
	int fd;
	bool muted; /* the fd is not in the epoll set */
	bool dead;  /* deleted; freed when no event of this turn can refer to it */
	event_fn *fn;
	void *arg;
	struct event_watch *next_dead;
};

struct event_loop {
	int epoll_fd;
	bool stopped;
	struct event_timer *timers; /* soonest first */
	struct event_watch *dead;
};

int event_loop_new(struct event_loop **out, struct err *e)
{
	scoped_fd int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	struct event_loop *l;

	if (epoll_fd < 0)
		return err_set(e, errno, "make the event loop");
	l = calloc(1, sizeof(*l));
	if (!l)
		return err_set(e, ENOMEM, "make the event loop");
	l->epoll_fd = take_fd(&epoll_fd);
	*out = l;
	return 0;
}

static void bury_dead(struct event_loop *l)
{
	struct event_watch *w, *next;

	for (w = l->dead; w; w = next) {
		next = w->next_dead;
		free(w);
	}
	l->dead = NULL;
}

void event_loop_free(struct event_loop *l)
{
	if (!l)
		return;
	bury_dead(l);
	close_fd(&l->epoll_fd);
	free(l);
}

void event_loop_stop(struct event_loop *l)
{
	l->stopped = true;
}

/*
 * Returns the timeout for epoll_wait: `timeout_ms` (-1: none), or the milliseconds until the first
 * timer is due if they are fewer. Rounded up, so that a timer never fires early.
 */
static int timeout_to_first(const struct event_loop *l, int timeout_ms)
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

static int run_due_timers(struct event_loop *l)
{
	uint64_t now = l->timers ? now_ns() : 0;
	int ran = 0;

	while (l->timers && l->timers->due_ns <= now) {
		struct event_timer *t = l->timers;

		l->timers = t->next;
		t->due_ns = 0;
		t->fn(t->arg);
		ran++;
	}
	return ran;
}

int event_loop_turn(struct event_loop *l, int timeout_ms)
{
	struct epoll_event ev[EVENTS_MAX];
	int ran = 0;
	int n = epoll_wait(l->epoll_fd, ev, EVENTS_MAX, timeout_to_first(l, timeout_ms));

	for (int i = 0; i < n; i++) {
		struct event_watch *w = ev[i].data.ptr;

		if (w->dead || w->muted)
			continue;
		w->fn(w->arg, ev[i].events);
		ran++;
	}
	bury_dead(l);
	return ran + run_due_timers(l);
}

void event_loop_run(struct event_loop *l)
{
	l->stopped = false;
	while (!l->stopped)
		event_loop_turn(l, -1);
}

int event_watch_add(struct event_loop *l, int fd, uint32_t events, event_fn *fn, void *arg,
		    struct event_watch **out, struct err *e)
{
	struct event_watch *w = calloc(1, sizeof(*w));
	struct epoll_event ev = {.events = events, .data.ptr = w};

	if (!w)
		return err_set(e, ENOMEM, "watch a descriptor");
	*w = (struct event_watch){.loop = l, .fd = fd, .fn = fn, .arg = arg};
	if (epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, fd, &ev) < 0) {
		int rc = err_set(e, errno, "watch descriptor %d", fd);

		free(w);
		return rc;
	}
	*out = w;
	return 0;
}

void event_watch_set(struct event_watch *w, uint32_t events)
{
	struct epoll_event ev = {.events = events, .data.ptr = w};

	/*
	 * Can fail only when a muted watch comes back and memory is short. There is nothing more to
	 * try then; the owner's timeouts end what waits for it.
	 */
	epoll_ctl(w->loop->epoll_fd, w->muted ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, w->fd, &ev);
	w->muted = false;
}

void event_watch_mute(struct event_watch *w)
{
	if (!w->muted)
		epoll_ctl(w->loop->epoll_fd, EPOLL_CTL_DEL, w->fd, NULL);
	w->muted = true;
}

void event_watch_del(struct event_watch *w)
{
	if (!w)
		return;
	event_watch_mute(w);
	w->dead = true;
	w->next_dead = w->loop->dead;
	w->loop->dead = w;
}

void event_timer_clear(struct event_loop *l, struct event_timer *t)
{
	if (!t->due_ns)
		return;
	for (struct event_timer **p = &l->timers; *p; p = &(*p)->next) {
		if (*p == t) {
			*p = t->next;
			break;
		}
	}
	t->due_ns = 0;
}

void event_timer_set(struct event_loop *l, struct event_timer *t, uint64_t after_ns)
{
	struct event_timer **p = &l->timers;

	event_timer_clear(l, t);
	t->due_ns = now_ns() + after_ns;
	while (*p && (*p)->due_ns <= t->due_ns)
		p = &(*p)->next;
	t->next = *p;
	*p = t;
}
