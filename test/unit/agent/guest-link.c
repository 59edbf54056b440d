// SPDX-License-Identifier: Apache-2.0
/* Which events the owner of a link gets, and what it may do in each callback. The attempt to reach
 * the agent is simulated; the connection and the loop are the real ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/wire.h"
#include "orchestrator/agent/guest-link.h"

enum { REACHED = 'r', FRAME = 'f', BROKEN = 'b', UNREACHED = 'u', NO_MEMORY = 'm', LATE = 'l' };

static struct {
	struct loop *loop;
	struct guest_link *link; /* on the heap: a callback may free it */
	struct loop_timer dialed, steps;
	dial_fn *fn;
	void *arg;
	uint32_t ms;
	bool while_working;
	bool cancelled;
	int guest;	/* the guest's end */
	char heard[16]; /* one letter per callback, in order */
	size_t n;
	size_t until;  /* the loop stops after this many callbacks */
	char frees_at; /* the callback that closes and frees the link */
	bool pauses;   /* pauses the link in REACHED */
	char text[128];
} t;

/* --- the attempt to reach the agent --------------------------------------------------------- */

static void on_attempt_over(void *arg)
{
	dial_fn *fn = t.fn;
	int pair[2];

	t.fn = NULL;
	if (!t.ms) {
		fn(t.arg, -1, "nobody answers");
		return;
	}
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	t.guest = pair[1];
	fn(t.arg, pair[0], NULL);
}

struct dial *dial_start(struct vmproc *vm, uint32_t ms, bool while_working, dial_fn *fn, void *arg)
{
	t.ms = ms;
	t.while_working = while_working;
	t.fn = fn;
	t.arg = arg;
	t.dialed = (struct loop_timer){.fn = on_attempt_over};
	loop_timer_set(t.loop, &t.dialed, 1);
	return (struct dial *)&t;
}

void dial_cancel(struct dial *d)
{
	if (!d)
		return;
	t.cancelled = true;
	loop_timer_clear(t.loop, &t.dialed);
}

/* --- the link's owner ----------------------------------------------------------------------- */

static void hear(char what)
{
	assert_true(t.n < sizeof(t.heard) - 1);
	t.heard[t.n++] = what;
	if (t.frees_at == what) {
		guest_link_close(t.link);
		free(t.link);
		t.link = NULL;
	}
	if (t.n == t.until)
		loop_stop(t.loop);
}

static void on_reached(void *arg)
{
	if (t.pauses)
		guest_link_pause(t.link, true);
	hear(REACHED);
}

static void on_frame(void *arg, const struct agent_frame *frame)
{
	assert_int_equal(frame->type, AGENT_DONE);
	hear(FRAME);
}

static void on_lost(void *arg, enum guest_lost reason, const char *text)
{
	assert_null(t.link->agent);
	assert_null(t.link->dial);
	snprintf(t.text, sizeof(t.text), "%s", text);
	hear(reason == GUEST_UNREACHED ? UNREACHED : reason == GUEST_BROKEN ? BROKEN : NO_MEMORY);
}

static void on_late(void *arg)
{
	hear(LATE);
}

static const struct guest_link_events events = {
	.reached = on_reached, .frame = on_frame, .lost = on_lost, .late = on_late};

static int begin(void **state)
{
	struct err e;

	memset(&t, 0, sizeof(t));
	t.guest = -1;
	t.link = calloc(1, sizeof(*t.link));
	assert_non_null(t.link);
	assert_int_equal(loop_new(&t.loop, &e), 0);
	guest_link_init(t.link, t.loop, &events, NULL);
	return 0;
}

static int end(void **state)
{
	if (t.link)
		guest_link_close(t.link);
	free(t.link);
	loop_free(t.loop);
	close_fd(&t.guest);
	return 0;
}

/* Runs the loop until as many callbacks came as `heard` has letters; they must be these. */
static void expect(const char *heard)
{
	t.until = strlen(heard);
	if (t.n < t.until)
		assert_int_equal(loop_run(t.loop), 0);
	assert_string_equal(t.heard, heard);
}

static void stop(void *arg)
{
	loop_stop(t.loop);
}

/* Runs a few turns of the loop, in which no callback may come. */
static void expect_silence(void)
{
	const size_t n = t.n;

	t.steps = (struct loop_timer){.fn = stop};
	loop_timer_set(t.loop, &t.steps, 20);
	assert_int_equal(loop_run(t.loop), 0);
	assert_int_equal(t.n, n);
}

static void guest_says_done(void)
{
	uint8_t bytes[AGENT_HEADER_SIZE];
	struct wire w = wire_on(bytes, sizeof(bytes));

	wire_put_u32(&w, 0);
	wire_put_u8(&w, AGENT_DONE);
	wire_put_u8(&w, 0);
	wire_put_u16(&w, 0);
	assert_int_equal(send(t.guest, bytes, sizeof(bytes), 0), sizeof(bytes));
}

static void connect_link(void)
{
	guest_link_dial(t.link, NULL, 1000, false);
	expect("r");
	assert_non_null(t.link->agent);
	assert_null(t.link->dial);
}

/* --- tests ---------------------------------------------------------------------------------- */

static void request_is_answered(void **state)
{
	uint8_t got[AGENT_HEADER_SIZE];

	connect_link();
	assert_int_equal(t.ms, 1000);
	assert_false(t.while_working);
	assert_true(guest_link_send_plain(t.link, AGENT_INTERRUPT));
	guest_says_done();
	expect("rf");
	assert_int_equal(recv(t.guest, got, sizeof(got), MSG_DONTWAIT), sizeof(got));
}

static void attempt_depends_on_the_vms_progress(void **state)
{
	guest_link_dial(t.link, NULL, 700, true);
	expect("r");
	assert_int_equal(t.ms, 700);
	assert_true(t.while_working);
}

static void unreachable_agent_is_reported_lost(void **state)
{
	guest_link_dial(t.link, NULL, 0, false);
	expect("u");
	assert_string_equal(t.text, "nobody answers");
}

static void closed_connection_is_reported_lost(void **state)
{
	connect_link();
	close_fd(&t.guest);
	expect("rb");
	assert_non_null(strstr(t.text, "closed the connection"));
}

static void failed_encoding_is_reported_at_once(void **state)
{
	connect_link();
	assert_false(guest_link_send(t.link, (struct agent_bytes){.error = -ENOMEM}));
	assert_string_equal(t.heard, "rm");
}

static void deadline_passes_with_a_connection(void **state)
{
	connect_link();
	guest_link_set_deadline(t.link, 1);
	expect("rl");
	assert_non_null(t.link->agent);
}

static void deadline_outlives_the_connection(void **state)
{
	connect_link();
	guest_link_set_deadline(t.link, 10);
	close_fd(&t.guest);
	expect("rbl");
}

static void cleared_deadline_does_not_pass(void **state)
{
	connect_link();
	guest_link_set_deadline(t.link, 1);
	guest_link_clear_deadline(t.link);
	expect_silence();
}

static void cancelled_attempt_is_not_reported(void **state)
{
	guest_link_dial(t.link, NULL, 1000, false);
	guest_link_cancel_dial(t.link);
	assert_true(t.cancelled);
	expect_silence();
}

static void closed_link_calls_nothing(void **state)
{
	connect_link();
	guest_link_set_deadline(t.link, 1);
	guest_says_done();
	guest_link_close(t.link);
	expect_silence();
}

static void zeroed_link_can_be_closed(void **state)
{
	struct guest_link zeroed = {0};

	guest_link_close(&zeroed);
	assert_null(zeroed.agent);
}

static void paused_link_hands_out_nothing_until_resumed(void **state)
{
	t.pauses = true;
	connect_link();
	guest_says_done();
	expect_silence();
	guest_link_pause(t.link, false);
	expect("rf");
}

static void link_paused_before_it_is_reached_stays_paused(void **state)
{
	guest_link_pause(t.link, true);
	connect_link();
	guest_says_done();
	expect_silence();
	guest_link_pause(t.link, false);
	expect("rf");
}

static void connection_moves_to_another_link(void **state)
{
	struct guest_link from = *t.link;

	guest_link_init(&from, t.loop, &events, NULL);
	connect_link();
	guest_link_take(&from, guest_link_release(t.link));
	assert_null(t.link->agent);
	guest_link_close(t.link); /* the link no longer owns the connection */
	guest_says_done();
	expect("rf");
	guest_link_close(&from);
}

/* Any callback may free the link. */
static void link_can_be_freed_in_callbacks(void **state)
{
	static const char callbacks[] = {REACHED, FRAME, BROKEN, LATE, UNREACHED};

	for (size_t i = 0; i < sizeof(callbacks); i++) {
		end(state);
		begin(state);
		t.frees_at = callbacks[i];
		guest_link_dial(t.link, NULL, callbacks[i] == UNREACHED ? 0 : 1000, false);
		expect(callbacks[i] == UNREACHED ? "u" : "r");
		if (callbacks[i] == FRAME)
			guest_says_done();
		else if (callbacks[i] == BROKEN)
			close_fd(&t.guest);
		else if (callbacks[i] == LATE)
			guest_link_set_deadline(t.link, 1);
		if (t.link) {
			t.until = 2;
			assert_int_equal(loop_run(t.loop), 0);
			assert_int_equal(t.heard[1], callbacks[i]);
		}
		assert_null(t.link);
		expect_silence();
	}
}

static void link_can_be_freed_when_encoding_fails(void **state)
{
	connect_link();
	t.frees_at = NO_MEMORY;
	assert_false(guest_link_send(t.link, (struct agent_bytes){.error = -ENOMEM}));
	assert_null(t.link);
	expect_silence();
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(request_is_answered),
		TEST(attempt_depends_on_the_vms_progress),
		TEST(unreachable_agent_is_reported_lost),
		TEST(closed_connection_is_reported_lost),
		TEST(failed_encoding_is_reported_at_once),
		TEST(deadline_passes_with_a_connection),
		TEST(deadline_outlives_the_connection),
		TEST(cleared_deadline_does_not_pass),
		TEST(cancelled_attempt_is_not_reported),
		TEST(closed_link_calls_nothing),
		TEST(zeroed_link_can_be_closed),
		TEST(paused_link_hands_out_nothing_until_resumed),
		TEST(link_paused_before_it_is_reached_stays_paused),
		TEST(connection_moves_to_another_link),
		TEST(link_can_be_freed_in_callbacks),
		TEST(link_can_be_freed_when_encoding_fails),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
