// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "vmm/dev/event-loop.h"

struct world {
	struct event_loop *loop;
	int a, b; /* a socket pair */
	struct event_watch *watch, *other;
	int calls;
	uint32_t events;
	char order[16];
};

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	w->a = fds[0];
	w->b = fds[1];
	assert_int_equal(event_loop_new(&w->loop, NULL), 0);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	event_loop_free(w->loop);
	close(w->a);
	if (w->b >= 0)
		close(w->b);
	free(w);
	return 0;
}

static void on_event(void *arg, uint32_t events)
{
	struct world *w = arg;

	w->calls++;
	w->events = events;
}

static void watch(struct world *w, uint32_t events)
{
	assert_int_equal(event_watch_add(w->loop, w->a, events, on_event, w, &w->watch, NULL), 0);
}

static void test_watch_is_level_triggered(void **state)
{
	struct world *w = *state;

	watch(w, EPOLLIN);
	assert_int_equal(event_loop_turn(w->loop, 0), 0);
	assert_int_equal(write(w->b, "x", 1), 1);
	event_loop_turn(w->loop, -1);
	event_loop_turn(w->loop, -1);
	assert_int_equal(w->calls, 2);
	assert_int_equal(w->events, EPOLLIN);
	event_watch_set(w->watch, 0);
	assert_int_equal(event_loop_turn(w->loop, 0), 0);
	event_watch_set(w->watch, EPOLLIN | EPOLLOUT);
	event_loop_turn(w->loop, -1);
	assert_int_equal(w->events, EPOLLIN | EPOLLOUT);
	event_watch_del(w->watch);
	assert_int_equal(event_loop_turn(w->loop, 0), 0);
}

static void test_only_a_muted_watch_ignores_a_hang_up(void **state)
{
	struct world *w = *state;

	watch(w, 0);
	close(w->b);
	w->b = -1;
	event_loop_turn(w->loop, -1);
	assert_true(w->events & EPOLLHUP);
	event_watch_mute(w->watch);
	assert_int_equal(event_loop_turn(w->loop, 0), 0);
	event_watch_mute(w->watch);
	event_watch_set(w->watch, EPOLLIN);
	event_loop_turn(w->loop, -1);
	assert_int_equal(w->calls, 2);
	event_watch_del(w->watch);
}

static void on_event_delete_both(void *arg, uint32_t events)
{
	struct world *w = arg;

	w->calls++;
	event_watch_del(w->watch);
	event_watch_del(w->other);
	w->watch = w->other = NULL;
}

static void test_watch_deleted_in_a_callback_is_not_called_again(void **state)
{
	struct world *w = *state;

	assert_int_equal(
		event_watch_add(w->loop, w->a, EPOLLOUT, on_event_delete_both, w, &w->watch, NULL),
		0);
	assert_int_equal(
		event_watch_add(w->loop, w->b, EPOLLOUT, on_event_delete_both, w, &w->other, NULL),
		0);
	event_loop_turn(w->loop, -1);
	assert_int_equal(w->calls, 1); /* although both watches were ready in that turn */
	assert_int_equal(event_loop_turn(w->loop, 0), 0);
}

static void test_watch_on_a_closed_descriptor_is_an_error(void **state)
{
	struct world *w = *state;
	struct err e = {0};

	assert_true(event_watch_add(w->loop, 9999, EPOLLIN, on_event, w, &w->watch, &e) < 0);
	assert_non_null(strstr(e.text, "9999"));
}

struct named_timer {
	struct event_timer t;
	struct world *w;
	char name;
};

static void on_timer(void *arg)
{
	struct named_timer *n = arg;
	size_t len = strlen(n->w->order);

	n->w->order[len] = n->name;
	if (len == 2)
		event_loop_stop(n->w->loop);
}

static void test_timers_run_once_in_order(void **state)
{
	struct world *w = *state;
	struct named_timer n[4];

	for (int i = 0; i < 4; i++)
		n[i] = (struct named_timer){{.fn = on_timer, .arg = &n[i]}, w, (char)('a' + i)};
	event_timer_set(w->loop, &n[2].t, 3000000);
	event_timer_set(w->loop, &n[0].t, 9000000);
	event_timer_set(w->loop, &n[1].t, 2000000);
	event_timer_set(w->loop, &n[0].t, 1000000); /* moved to the front */
	event_timer_set(w->loop, &n[3].t, 1500000);
	event_timer_clear(w->loop, &n[3].t);
	event_timer_clear(w->loop, &n[3].t);
	event_loop_run(w->loop);
	assert_string_equal(w->order, "abc");
	assert_int_equal(n[0].t.due_ns, 0);
	assert_int_equal(event_loop_turn(w->loop, 0), 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_watch_is_level_triggered),
		T(test_only_a_muted_watch_ignores_a_hang_up),
		T(test_watch_deleted_in_a_callback_is_not_called_again),
		T(test_watch_on_a_closed_descriptor_is_an_error),
		T(test_timers_run_once_in_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
