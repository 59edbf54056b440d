// SPDX-License-Identifier: Apache-2.0
/* Load that a guest can put on the service with valid frames. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/wire.h"
#include "orchestrator/agent/agent.h"

#define TURN_MOST 1000 /* maximum of events before other users of the loop have their turn */

struct reader {
	struct loop *loop;
	struct agent *agent;
	struct loop_timer other; /* another user of the loop, due once in each turn */
	unsigned turns, in_turn, most;
	size_t bytes, frames;
	bool pauses, ended;
};

static void other(void *arg)
{
	struct reader *r = arg;

	r->turns++;
	r->in_turn = 0;
	if (r->pauses)
		agent_resume(r->agent);
	loop_timer_set(r->loop, &r->other, 0);
}

static void on_frame(void *arg, const struct agent_frame *frame)
{
	struct reader *r = arg;

	r->frames++;
	r->in_turn++;
	for (size_t i = 0; i < frame->len; i++) {
		assert_int_equal(frame->data[i], "ab\n"[r->bytes++ % 3]);
		r->in_turn += frame->data[i] == '\n';
	}
	if (r->in_turn > r->most)
		r->most = r->in_turn;
	if (r->pauses)
		agent_pause(r->agent);
}

static void on_ended(void *arg, const char *reason)
{
	struct reader *r = arg;

	r->ended = true;
	loop_stop(r->loop);
}

static const struct agent_events events = {.frame = on_frame, .ended = on_ended};

static size_t put_frame(uint8_t *to, const uint8_t *payload, uint32_t len)
{
	struct wire w = wire_on(to, AGENT_HEADER_SIZE + len);

	wire_put_u32(&w, len);
	wire_put_u8(&w, AGENT_STDOUT);
	wire_put_u8(&w, 0);
	wire_put_u16(&w, 0);
	wire_put_bytes(&w, payload, len);
	return w.pos;
}

/* Reads the frames of a guest that sends `bytes` and then hangs up. */
static struct reader read_all(const uint8_t *bytes, size_t len, bool pauses)
{
	struct reader r = {.other = {.fn = other}, .pauses = pauses};
	struct err e;
	int pair[2], room = 1 << 20;

	r.other.arg = &r;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	setsockopt(pair[1], SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
	assert_int_equal(send(pair[1], bytes, len, MSG_DONTWAIT), len);
	close(pair[1]);
	assert_int_equal(loop_new(&r.loop, &e), 0);
	r.agent = agent_new(r.loop, pair[0], &events, &r);
	loop_timer_set(r.loop, &r.other, 0);
	assert_int_equal(loop_run(r.loop), 0);
	assert_true(r.ended);
	loop_timer_clear(r.loop, &r.other);
	agent_free(r.agent);
	loop_free(r.loop);
	return r;
}

/* Each line is an event: the 21845 lines of this frame must not be handled in one turn. */
static void lines_leave_others_a_turn(void **state)
{
	static uint8_t payload[AGENT_PAYLOAD_MAX - 1], bytes[AGENT_HEADER_SIZE + sizeof(payload)];

	for (size_t i = 0; i < sizeof(payload); i++)
		payload[i] = (uint8_t) "ab\n"[i % 3];
	put_frame(bytes, payload, sizeof(payload));
	for (int pauses = 0; pauses < 2; pauses++) {
		struct reader r = read_all(bytes, sizeof(bytes), pauses);

		assert_int_equal(r.bytes, sizeof(payload));
		assert_in_range(r.most, 1, TURN_MOST);
		assert_true(r.turns > sizeof(payload) / 3 / TURN_MOST);
	}
}

static void small_frames_leave_others_a_turn(void **state)
{
	enum { FRAMES = 6000 };
	static uint8_t bytes[FRAMES * (AGENT_HEADER_SIZE + 1)];
	size_t len = 0, byte = 0;

	for (size_t i = 0; i < FRAMES; i++) {
		uint32_t n = i % 5 != 4; /* some are empty */

		len += put_frame(bytes + len, (const uint8_t *)"ab\n" + byte % 3, n);
		byte += n;
	}
	struct reader r = read_all(bytes, len, false);
	assert_int_equal(r.frames, FRAMES);
	assert_int_equal(r.bytes, byte);
	assert_in_range(r.most, 1, TURN_MOST);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lines_leave_others_a_turn),
		cmocka_unit_test(small_frames_leave_others_a_turn),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
