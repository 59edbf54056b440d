// SPDX-License-Identifier: Apache-2.0
/* Connections: while a call runs, the last byte of its code stays unread in the socket, and the
 * loop must ignore it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/ioctl.h>

#include <cmocka.h>

#include "../../../guest/conn.c"
#include "../../../guest/send.c"

#define CODE "print(1)"

static int peer;
static struct conn *conn;
static struct frame got;
static char code[64];
static bool gone;

static void on_frame(struct conn *c, const struct frame *f)
{
	got = *f;
	assert_in_range(f->len, 0, sizeof(code) - 1);
	memcpy(code, f->payload, f->len);
	code[f->len] = 0;
	frame_reset(&c->in);
}

static void on_sent(struct conn *c)
{
}

static void on_gone(struct conn *c, enum conn_state was)
{
	gone = true;
}

static int set_up(void **state)
{
	static const struct conn_ops test_ops = {on_frame, on_sent, on_gone};
	int ends[2];

	conn_init(&test_ops);
	gone = false;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends))
		return -1;
	peer = ends[0];
	conn = conn_new(ends[1]);
	return conn ? 0 : -1;
}

static int tear_down(void **state)
{
	conn_drop(conn);
	conn_reap();
	close(peer);
	return 0;
}

static void peer_sends(uint8_t type, const char *payload)
{
	uint8_t bytes[AGENT_HEADER_SIZE + sizeof(code)];
	size_t len = strlen(payload);

	frame_header(bytes, type, (uint32_t)len);
	memcpy(bytes + AGENT_HEADER_SIZE, payload, len);
	assert_int_equal(write(peer, bytes, AGENT_HEADER_SIZE + len), AGENT_HEADER_SIZE + len);
}

static void assert_received(uint8_t type, const char *payload)
{
	got = (struct frame){0};
	assert_true(loop_once(0));
	assert_int_equal(got.type, type);
	assert_string_equal(code, payload);
}

static int unread(void)
{
	int n = -1;

	assert_int_equal(ioctl(conn->watch.fd, FIONREAD, &n), 0);
	return n;
}

static void start_call(void)
{
	conn_become(conn, CONN_CODE);
	peer_sends(AGENT_CODE, CODE);
	assert_received(AGENT_CODE, CODE);
	conn_become(conn, CONN_CALL);
	assert_int_equal(unread(), 1);
	/* The loop may report the unread byte once, but not repeatedly. */
	loop_once(0);
	assert_false(loop_once(0));
}

static void test_last_byte_is_read_when_the_call_has_ended(void **state)
{
	start_call();
	assert_false(gone);
	conn_become(conn, CONN_IDLE);
	assert_int_equal(unread(), 0);
	peer_sends(AGENT_PING, "");
	assert_received(AGENT_PING, "");
}

static void test_code_arrives_in_parts(void **state)
{
	static const char *const parts[] = {"x", "yz", CODE, "\n"};

	conn_become(conn, CONN_CODE);
	for (size_t i = 0; i < 4; i++)
		peer_sends(AGENT_CODE, parts[i]);
	for (size_t i = 0; i < 4; i++)
		assert_received(AGENT_CODE, parts[i]);
	assert_int_equal(unread(), 1);
}

static void test_held_code_arrives_when_released(void **state)
{
	conn_become(conn, CONN_CODE);
	peer_sends(AGENT_CODE, CODE);
	assert_received(AGENT_CODE, CODE);
	conn_hold(conn, true);
	peer_sends(AGENT_CODE, "more");
	assert_false(loop_once(0));
	conn_hold(conn, false);
	assert_received(AGENT_CODE, "more");
}

static void test_frame_during_a_call_closes_it(void **state)
{
	start_call();
	peer_sends(AGENT_PING, "");
	assert_true(loop_once(0));
	assert_true(gone);
}

static void test_byte_closes_a_call_without_code(void **state)
{
	conn_become(conn, CONN_CALL);
	assert_int_equal(write(peer, "", 1), 1);
	assert_true(loop_once(0));
	assert_true(gone);
}

static void test_disconnect_of_the_client_is_noticed(void **state)
{
	start_call();
	assert_int_equal(shutdown(peer, SHUT_WR), 0);
	assert_true(loop_once(0));
	assert_true(gone);
}

static void test_output_continues_when_the_reader_does(void **state)
{
	static uint8_t bytes[AGENT_PAYLOAD_MAX];
	size_t sent = 0, read_back = 0;
	ssize_t n;

	start_call();
	for (; !conn->out_len; sent += AGENT_HEADER_SIZE + sizeof(bytes))
		conn_send(conn, AGENT_STDOUT, bytes, sizeof(bytes));
	do {
		while ((n = read(peer, bytes, sizeof(bytes))) > 0)
			read_back += (size_t)n;
	} while (loop_once(0));
	assert_false(gone);
	assert_int_equal(read_back, sent);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_last_byte_is_read_when_the_call_has_ended,
						set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_code_arrives_in_parts, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_held_code_arrives_when_released, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(test_frame_during_a_call_closes_it, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(test_byte_closes_a_call_without_code, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(test_disconnect_of_the_client_is_noticed, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(test_output_continues_when_the_reader_does, set_up,
						tear_down),
	};
	return loop_init() ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
