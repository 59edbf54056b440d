// SPDX-License-Identifier: Apache-2.0
/* The service's end of the webhooks; the test is ramet-notify. */
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "orchestrator/events/line.h"
#include "orchestrator/events/notify.h"
#include "orchestrator/daemon/outbox.h"

struct world {
	struct loop *loop;
	struct store *store;
	struct outbox *box;
	int ends[2]; /* of the service and of ramet-notify */
	struct loop_timer idle;
	unsigned turns;
};

static void on_added(void *arg)
{
	struct world *w = arg;

	outbox_look(w->box);
}

/* Begins a service; the previous one was killed. */
static void start(struct world *w)
{
	struct err e;

	if (w->loop) {
		loop_free(w->loop);
		outbox_free(w->box);
		w->box = NULL;
	}
	if (loop_new(&w->loop, &e) < 0 ||
	    outbox_new(&w->box, w->loop, w->store, w->ends[0], "key.*", &e) < 0)
		fail_msg("%s", e.text);
}

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	struct err e;

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, w->ends), 0);
	if (store_open(&w->store, ":memory:", &e) < 0)
		fail_msg("%s", e.text);
	store_events_watch(w->store, on_added, w);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	loop_free(w->loop);
	outbox_free(w->box);
	store_close(w->store);
	close(w->ends[0]);
	close(w->ends[1]);
	free(w);
	return 0;
}

/* Makes a change with this event. */
static void add(struct world *w, const char *name)
{
	struct err e;

	store_event(w->store, &(struct audit_event){.name = name, .at_ms = 1795298467007});
	if (store_sandbox_seq(w->store, "sbx_1", 7, &e) < 0)
		fail_msg("%s", e.text);
}

static void ask(struct world *w, uint64_t done)
{
	const struct notify_request request = {done};

	assert_int_equal(send(w->ends[1], &request, sizeof(request), 0), sizeof(request));
}

static void on_line(void *arg, int result)
{
	loop_stop(arg);
}

/* Runs the service until a line comes; returns the number of its event. */
static uint64_t came(struct world *w)
{
	char line[AUDIT_LINE_MAX];
	struct audit_line head;

	loop_poll(w->loop, w->ends[1], POLLIN, on_line, w->loop);
	assert_int_equal(loop_run(w->loop), 0);
	ssize_t len = recv(w->ends[1], line, sizeof(line), MSG_DONTWAIT);
	assert_true(len > 0 && audit_line_parse(&head, line, (size_t)len));
	assert_memory_equal(head.name, "key.", 4);
	return head.n;
}

static void stop_if_idle(void *arg)
{
	struct world *w = arg;
	int bytes = 0;

	assert_int_equal(ioctl(w->ends[0], FIONREAD, &bytes), 0);
	loop_timer_set(w->loop, &w->idle, 0);
	if (!bytes && ++w->turns > 100) /* with no request left, a few turns suffice */
		loop_stop(w->loop);
}

/* Runs the service until it has handled each request; no line comes. */
static void nothing_came(struct world *w)
{
	char line[AUDIT_LINE_MAX];

	w->turns = 0;
	loop_timer_start(w->loop, &w->idle, stop_if_idle, w, 0);
	assert_int_equal(loop_run(w->loop), 0);
	loop_timer_clear(w->loop, &w->idle);
	assert_int_equal(recv(w->ends[1], line, sizeof(line), MSG_DONTWAIT), -1);
}

static void wanted_events_come_in_order(void **state)
{
	struct world *w = *state;

	add(w, "key.created"); /* before the first start with webhooks */
	start(w);
	ask(w, 0);
	nothing_came(w);
	add(w, "sandbox.created");
	add(w, "key.created");
	add(w, "key.revoked");
	assert_int_equal(came(w), 3);
	nothing_came(w);
	ask(w, 3);
	assert_int_equal(came(w), 4);
	ask(w, 4);
	nothing_came(w);
	struct outbox_stats now;
	outbox_stats(w->box, &now);
	assert_int_equal(now.behind, 0);
	assert_int_equal(now.dropped, 0);
}

static void lost_line_is_sent_again(void **state)
{
	struct world *w = *state;

	start(w);
	add(w, "key.created");
	add(w, "key.revoked");
	ask(w, 0);
	assert_int_equal(came(w), 1);
	ask(w, 0); /* ramet-notify has restarted */
	assert_int_equal(came(w), 1);
	start(w);
	ask(w, 0);
	assert_int_equal(came(w), 1);
	ask(w, 1);
	assert_int_equal(came(w), 2);
	start(w); /* it is recorded that 1 was sent */
	ask(w, 1);
	assert_int_equal(came(w), 2);
}

static void false_claims_have_no_effect(void **state)
{
	struct world *w = *state;
	uint64_t done;
	struct err e;

	start(w);
	add(w, "key.created");
	add(w, "key.revoked");
	ask(w, 1000);
	assert_int_equal(came(w), 1);
	ask(w, UINT64_MAX);
	assert_int_equal(came(w), 1);
	assert_int_equal(send(w->ends[1], "", 1, 0), 1);
	nothing_came(w);
	assert_int_equal(store_webhooks_done(w->store, &done, &e), 1);
	assert_int_equal(done, 0);
	ask(w, 1);
	assert_int_equal(came(w), 2);
}

static void removed_events_are_counted(void **state)
{
	struct world *w = *state;
	struct outbox_stats now;

	start(w);
	store_events_keep(w->store, 2);
	for (int i = 0; i < 5; i++)
		add(w, "key.created");
	outbox_stats(w->box, &now);
	assert_int_equal(now.behind, 5);
	ask(w, 0);
	assert_int_equal(came(w), 4);
	outbox_stats(w->box, &now);
	assert_int_equal(now.behind, 2);
	assert_int_equal(now.dropped, 3);
}

/* The position is recorded also when no event is wanted for long. */
static void unwanted_events_are_passed_over(void **state)
{
	struct world *w = *state;
	uint64_t done;
	struct err e;

	start(w);
	ask(w, 0);
	nothing_came(w);
	for (int i = 0; i < 1500; i++)
		add(w, "sandbox.created");
	add(w, "key.created");
	assert_int_equal(came(w), 1501);
	assert_int_equal(store_webhooks_done(w->store, &done, &e), 1);
	assert_in_range(done, 1000, 1500);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(wanted_events_come_in_order),     TEST(lost_line_is_sent_again),
		TEST(false_claims_have_no_effect),     TEST(removed_events_are_counted),
		TEST(unwanted_events_are_passed_over),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
