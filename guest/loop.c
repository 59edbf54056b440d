// SPDX-License-Identifier: Apache-2.0
#include "guest/loop.h"

#include <errno.h>
#include <sys/epoll.h>

#include "base/clock.h"
#include "base/elements.h"
#include "base/fd.h"

static int loop_fd = -1;
static struct list changed = {&changed, &changed};

int loop_init(void)
{
	loop_fd = epoll_create1(EPOLL_CLOEXEC);
	return loop_fd < 0 ? -errno : 0;
}

int watch_add(struct watch *w, int fd, uint32_t events)
{
	struct epoll_event ev = {.events = events, .data.ptr = w};

	if (epoll_ctl(loop_fd, EPOLL_CTL_ADD, fd, &ev) < 0)
		return -errno;
	w->fd = fd;
	w->events = w->known = events;
	list_init(&w->changed);
	return 0;
}

void watch_again(struct watch *w, uint32_t events)
{
	struct epoll_event ev = {.events = events, .data.ptr = w};

	epoll_ctl(loop_fd, EPOLL_CTL_MOD, w->fd, &ev);
	w->events = w->known = events;
	list_del(&w->changed);
}

void watch_set(struct watch *w, uint32_t events)
{
	w->events = events;
	list_del(&w->changed);
	if (w->events != w->known)
		list_add_tail(&changed, &w->changed);
}

void watch_del(struct watch *w)
{
	list_del(&w->changed);
	epoll_ctl(loop_fd, EPOLL_CTL_DEL, w->fd, NULL);
}

void watch_close(struct watch *w)
{
	if (w->fd < 0)
		return;
	watch_del(w);
	close_fd(&w->fd);
}

bool loop_once(int timeout_ms)
{
	struct epoll_event ev;

	list_drain_of (w, struct watch, changed, &changed)
		watch_again(w, w->events);
	if (epoll_wait(loop_fd, &ev, 1, timeout_ms) != 1)
		return false;
	struct watch *w = ev.data.ptr;
	w->on_event(w, ev.events);
	return true;
}

int64_t loop_now_ms(void)
{
	return (int64_t)(now_ns() / 1000000);
}
