// SPDX-License-Identifier: Apache-2.0
/* The socket device between a fake guest driver and real stream sockets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "driver.h"

#define CID	    77
#define GUEST_ALLOC (1u << 18)
#define RX_BUFS	    64
#define RX_BYTES    (44u + 4096)
#define MAX_CONNS   256
#define CREDIT	    (256u << 10) /* the device's initial credit */

enum { RX, TX, EVENT };
enum { REQUEST = 1, RESPONSE, RST, SHUTDOWN, RW, CREDIT_UPDATE, CREDIT_REQUEST };

/* The clock is stopped; a test advances it. */
static uint64_t skipped_ns;
int __wrap_clock_gettime(clockid_t id, struct timespec *t);

int __wrap_clock_gettime(clockid_t id, struct timespec *t)
{
	uint64_t ns = 1000000000ull * 1000 + skipped_ns;

	t->tv_sec = (time_t)(ns / 1000000000);
	t->tv_nsec = (long)(ns % 1000000000);
	return 0;
}

struct packet {
	uint64_t src_cid, dst_cid;
	uint32_t src_port, dst_port, len;
	uint16_t type, op;
	uint32_t flags, buf_alloc, fwd_cnt;
	uint8_t data[4096];
};

struct world {
	struct drv v;
	uint64_t tx; /* a buffer for one packet */
	struct packet p;
	int small_socket;    /* size of the send buffers of new sockets; 0: the default */
	int result, results; /* of vio_vsock_connect */
	bool vital;	     /* the next connections are */
};

static void post_rx(struct world *w)
{
	struct drv_buf buf = {drv_alloc(&w->v, RX_BYTES, 64), RX_BYTES, true};

	drv_add(&w->v, RX, &buf, 1);
}

static void post_buffers(struct world *w)
{
	for (int i = 0; i < RX_BUFS; i++)
		post_rx(w);
	for (int i = 0; i < 4; i++)
		drv_add(&w->v, EVENT, &(struct drv_buf){drv_alloc(&w->v, 4, 4), 4, true}, 1);
	drv_kick(&w->v, RX);
	drv_kick(&w->v, EVENT);
	drv_run(&w->v);
}

static void make_device(struct world *w)
{
	struct vio_dev *dev;

	drv_init(&w->v, 2 << 20);
	assert_int_equal(vio_vsock_new(&dev, &w->v.mem, w->v.loop, CID, NULL), 0);
	drv_attach(&w->v, dev);
}

static void start_driver(struct world *w)
{
	drv_start(&w->v, DRV_F_EVENT_IDX, 256);
	w->tx = drv_alloc(&w->v, 44 + 65536, 64);
	post_buffers(w);
}

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	make_device(w);
	start_driver(w);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	drv_fini(&w->v);
	free(w);
	return 0;
}

/* --- the guest --- */

/* Copies the next packet for the guest to w->p, and offers its buffer again. Returns false if there
 * is none. */
static bool hear(struct world *w)
{
	uint16_t head;
	uint32_t len;
	uint64_t addr;
	struct packet *p = &w->p;

	drv_run(&w->v);
	if (!drv_used(&w->v, RX, &head, &len))
		return false;
	memcpy(&addr, drv_ptr(&w->v, w->v.q[RX].desc + 16ull * head), 8);
	struct wire r = wire_from(drv_ptr(&w->v, addr), len);
	p->src_cid = wire_get_u64(&r);
	p->dst_cid = wire_get_u64(&r);
	p->src_port = wire_get_u32(&r);
	p->dst_port = wire_get_u32(&r);
	p->len = wire_get_u32(&r);
	p->type = wire_get_u16(&r);
	p->op = wire_get_u16(&r);
	p->flags = wire_get_u32(&r);
	p->buf_alloc = wire_get_u32(&r);
	p->fwd_cnt = wire_get_u32(&r);
	assert_int_equal(len, 44 + p->len);
	assert_int_equal(p->src_cid, 2);
	assert_int_equal(p->dst_cid, CID);
	wire_get_bytes(&r, p->data, p->len);
	assert_false(r.bad);
	drv_offer(&w->v, RX, head);
	drv_kick(&w->v, RX);
	return true;
}

static void expect(struct world *w, uint16_t op)
{
	assert_true(hear(w));
	assert_int_equal(w->p.op, op);
}

static void expect_silence(struct world *w)
{
	if (hear(w))
		fail_msg("unexpected packet with op %u", w->p.op);
}

static void offer_raw(struct world *w, const struct packet *p, const void *data, uint32_t data_len)
{
	struct wire o = wire_on(drv_ptr(&w->v, w->tx), 44 + 65536);

	wire_put_u64(&o, p->src_cid);
	wire_put_u64(&o, p->dst_cid);
	wire_put_u32(&o, p->src_port);
	wire_put_u32(&o, p->dst_port);
	wire_put_u32(&o, p->len);
	wire_put_u16(&o, p->type);
	wire_put_u16(&o, p->op);
	wire_put_u32(&o, p->flags);
	wire_put_u32(&o, p->buf_alloc);
	wire_put_u32(&o, p->fwd_cnt);
	wire_put_bytes(&o, data, data_len);
	struct drv_buf bufs[2] = {{w->tx, 44, false}, {w->tx + 44, data_len, false}};
	drv_add(&w->v, TX, bufs, data_len ? 2 : 1);
	drv_kick(&w->v, TX);
	drv_run(&w->v);
}

static void send_raw(struct world *w, const struct packet *p, const void *data, uint32_t data_len)
{
	uint16_t head;
	uint32_t len;

	offer_raw(w, p, data, data_len);
	drv_used(&w->v, TX, &head, &len);
}

/* A connection as the guest knows it. */
struct peer {
	int host; /* the test's end of the stream */
	uint32_t host_port, guest_port;
	uint32_t alloc, fwd; /* the guest's buf_alloc and fwd_cnt */
};

static void say(struct world *w, const struct peer *c, uint16_t op, uint32_t flags,
		const void *data, uint32_t len)
{
	struct packet p = {.src_cid = CID,
			   .dst_cid = 2,
			   .src_port = c->guest_port,
			   .dst_port = c->host_port,
			   .len = len,
			   .type = 1,
			   .op = op,
			   .flags = flags,
			   .buf_alloc = c->alloc,
			   .fwd_cnt = c->fwd};

	send_raw(w, &p, data, len);
}

/* --- the host --- */

static void on_done(void *arg, int result)
{
	struct world *w = arg;

	w->result = result;
	w->results++;
}

static struct peer dial(struct world *w, uint32_t guest_port)
{
	struct peer c = {.guest_port = guest_port, .alloc = GUEST_ALLOC};
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds),
			 0);
	c.host = fds[0];
	/* The device must not rely on the flag, which it cannot set. */
	assert_int_equal(fcntl(fds[1], F_SETFL, 0), 0);
	if (w->small_socket)
		assert_int_equal(setsockopt(fds[1], SOL_SOCKET, SO_SNDBUF, &w->small_socket,
					    sizeof(w->small_socket)),
				 0);
	w->results = 0;
	vio_vsock_connect(w->v.dev, guest_port, w->vital, fds[1], on_done, w);
	return c;
}

static struct peer connected(struct world *w, uint32_t guest_port)
{
	struct peer c = dial(w, guest_port);

	expect(w, REQUEST);
	assert_int_equal(w->p.dst_port, guest_port);
	assert_int_equal(w->p.type, 1);
	c.host_port = w->p.src_port;
	assert_int_equal(w->results, 0);
	say(w, &c, RESPONSE, 0, NULL, 0);
	assert_int_equal(w->results, 1);
	assert_int_equal(w->result, 0);
	return c;
}

static void expect_host_eof(const struct peer *c)
{
	char byte;

	assert_int_equal(recv(c->host, &byte, 1, 0), 0);
}

static void expect_host_hears(const struct peer *c, const char *text)
{
	char buf[256] = "";

	assert_int_equal(recv(c->host, buf, sizeof(buf) - 1, 0), strlen(text));
	assert_string_equal(buf, text);
}

static void host_says(const struct peer *c, const char *text)
{
	assert_int_equal(send(c->host, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

static size_t fill_from_host(const struct peer *c)
{
	static char chunk[65536];
	size_t total = 0;
	ssize_t n;

	while ((n = send(c->host, chunk, sizeof(chunk), MSG_NOSIGNAL)) > 0)
		total += (size_t)n;
	return total;
}

/* --- tests --- */

static void test_data_passes_both_ways(void **state)
{
	struct world *w = *state;
	struct peer c = connected(w, 5555);

	assert_int_equal(drv_read(&w->v, DRV_CONFIG), CID);
	assert_int_equal(drv_read(&w->v, DRV_CONFIG + 4), 0);
	host_says(&c, "ping");
	expect(w, RW);
	assert_int_equal(w->p.len, 4);
	assert_memory_equal(w->p.data, "ping", 4);
	say(w, &c, RW, 0, "pong", 4);
	expect_host_hears(&c, "pong");
	expect_silence(w);
	assert_int_equal(vio_vsock_connections(w->v.dev), 1);
	close(c.host);
}

static void test_refused_connection_is_reported(void **state)
{
	struct world *w = *state;
	struct peer c = dial(w, 1);

	expect(w, REQUEST);
	c.host_port = w->p.src_port;
	say(w, &c, RST, 0, NULL, 0);
	assert_int_equal(w->results, 1);
	assert_int_equal(w->result, -ECONNREFUSED);
	expect_host_eof(&c);
	expect_silence(w);
	assert_int_equal(vio_vsock_connections(w->v.dev), 0);
	close(c.host);
}

static void test_unanswered_request_times_out(void **state)
{
	struct world *w = *state;
	struct peer c = dial(w, 1);

	expect(w, REQUEST);
	skipped_ns += 4900000000ull;
	expect_silence(w);
	assert_int_equal(w->results, 0);
	skipped_ns += 200000000ull;
	expect(w, RST);
	assert_int_equal(w->results, 1);
	assert_int_equal(w->result, -ETIMEDOUT);
	expect_host_eof(&c);
	close(c.host);
}

static void test_request_is_cancelled_when_the_caller_closes(void **state)
{
	struct world *w = *state;
	struct peer c = dial(w, 1);

	expect(w, REQUEST);
	close(c.host);
	expect(w, RST);
	assert_int_equal(w->result, -ECONNRESET);
	assert_int_equal(vio_vsock_connections(w->v.dev), 0);
}

static void test_request_waits_for_the_driver(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	make_device(w);
	struct peer c = dial(w, 5);
	drv_run(&w->v);
	start_driver(w);
	expect(w, REQUEST);
	c.host_port = w->p.src_port;
	say(w, &c, RESPONSE, 0, NULL, 0);
	assert_int_equal(w->result, 0);
	assert_int_equal(w->results, 1);
	close(c.host);
	*state = w;
	teardown(state);
}

static void test_packet_without_a_connection_is_reset(void **state)
{
	struct world *w = *state;
	struct peer none = {.host_port = 1234, .guest_port = 99, .alloc = 1000};

	say(w, &none, REQUEST, 0, NULL, 0); /* a guest cannot open connections */
	expect(w, RST);
	assert_int_equal(w->p.src_port, 1234);
	assert_int_equal(w->p.dst_port, 99);
	say(w, &none, RW, 0, "x", 1);
	expect(w, RST);
	say(w, &none, 99, 0, NULL, 0);
	expect(w, RST);
	say(w, &none, RST, 0, NULL, 0);
	expect_silence(w);

	struct packet p = {.src_cid = CID, .dst_cid = 2, .type = 2, .op = REQUEST};
	send_raw(w, &p, NULL, 0);
	expect(w, RST);
	assert_int_equal(w->p.type, 2);
	p = (struct packet){.src_cid = CID + 1, .dst_cid = 2, .type = 1, .op = RW};
	send_raw(w, &p, NULL, 0);
	p = (struct packet){.src_cid = CID, .dst_cid = 3, .type = 1, .op = RW};
	send_raw(w, &p, NULL, 0);
	expect_silence(w);
}

static void test_invalid_packet_resets_its_connection(void **state)
{
	static const uint16_t ops[] = {0, REQUEST, RESPONSE, 8, 0xffff};
	struct world *w = *state;

	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
		struct peer c = connected(w, 5555);

		say(w, &c, ops[i], 0, NULL, 0);
		expect(w, RST);
		expect_host_eof(&c);
		close(c.host);
	}
	struct peer c = dial(w, 1);
	expect(w, REQUEST);
	c.host_port = w->p.src_port;
	say(w, &c, RW, 0, "early", 5);
	expect(w, RST);
	assert_int_equal(w->result, -ECONNRESET);
	close(c.host);
	assert_int_equal(vio_vsock_connections(w->v.dev), 0);
	assert_int_equal(drv_read(&w->v, DRV_STATUS), 15);
}

static void test_packet_with_a_wrong_length_is_a_fault(void **state)
{
	static const uint32_t lies[] = {2, 65536, UINT32_MAX};
	struct world *w = *state;

	for (size_t i = 0; i < 3; i++) {
		struct peer c = connected(w, 5555);
		struct packet p = {.src_cid = CID,
				   .dst_cid = 2,
				   .src_port = 5555,
				   .dst_port = c.host_port,
				   .len = lies[i],
				   .type = 1,
				   .op = RW};

		send_raw(w, &p, "x", 1);
		assert_int_equal(drv_read(&w->v, DRV_STATUS), 15 | DRV_NEEDS_RESET);
		expect_host_eof(&c); /* the connection was closed */
		close(c.host);
		w->v.next_free = 4096 + 65536;
		start_driver(w);
	}
	drv_add(&w->v, TX, &(struct drv_buf){w->tx, 43, false}, 1);
	drv_kick(&w->v, TX);
	drv_run(&w->v);
	assert_int_equal(drv_read(&w->v, DRV_STATUS), 15 | DRV_NEEDS_RESET);
}

static void test_receive_buffer_without_room_is_a_fault(void **state)
{
	struct world *w = *state;

	drv_start(&w->v, 0, 256);
	drv_add(&w->v, RX, &(struct drv_buf){w->tx, 44, true}, 1);
	struct peer c = dial(w, 1);
	drv_run(&w->v);
	assert_int_equal(drv_read(&w->v, DRV_STATUS), 15 | DRV_NEEDS_RESET);
	close(c.host);
}

static void test_data_to_the_guest_stays_within_its_credit(void **state)
{
	struct world *w = *state;
	struct peer c = dial(w, 5);
	uint32_t got = 0;

	c.alloc = 10000;
	expect(w, REQUEST);
	c.host_port = w->p.src_port;
	say(w, &c, RESPONSE, 0, NULL, 0);
	fill_from_host(&c);
	while (hear(w) && w->p.op == RW)
		got += w->p.len;
	assert_int_equal(got, 10000);
	assert_int_equal(w->p.op, CREDIT_REQUEST);
	expect_silence(w); /* it asks only once */
	c.fwd = 6000;
	say(w, &c, CREDIT_UPDATE, 0, NULL, 0);
	for (got = 0; hear(w) && w->p.op == RW;)
		got += w->p.len;
	assert_int_equal(got, 6000);
	/* The guest lies: it claims to have read more than was sent, and then a smaller buffer. The
	 * device sends no more than these numbers allow. */
	c.fwd = 17000;
	say(w, &c, CREDIT_UPDATE, 0, NULL, 0);
	assert_int_equal(w->p.op, CREDIT_REQUEST);
	for (got = 0; hear(w) && w->p.op == RW;)
		got += w->p.len;
	assert_int_equal(got, 0);
	c.alloc = 0;
	c.fwd = UINT32_MAX;
	say(w, &c, CREDIT_UPDATE, 0, NULL, 0);
	expect(w, CREDIT_REQUEST);
	expect_silence(w);
	close(c.host);
	drv_run(&w->v); /* drv_run aborts if the pending hang-up keeps the loop busy */
}

/* Sends as much as the credit from the device allows; returns the number of bytes. */
static uint32_t send_all_credit(struct world *w, struct peer *c)
{
	static uint8_t zeros[4096];
	uint32_t room = CREDIT, sent = 0;

	while (sent < room) {
		uint32_t n = room - sent < 4096 ? room - sent : 4096;

		say(w, c, RW, 0, zeros, n);
		sent += n;
		while (hear(w)) {
			assert_int_equal(w->p.op, CREDIT_UPDATE);
			room = w->p.fwd_cnt + w->p.buf_alloc;
		}
	}
	return sent;
}

static void test_host_that_does_not_read_applies_back_pressure(void **state)
{
	struct world *w = *state;
	struct peer slow = connected(w, 5), quick = connected(w, 6);
	static char sink[1 << 20];
	uint32_t sent = send_all_credit(w, &slow);
	size_t got = 0;
	ssize_t n;

	assert_true(sent >= CREDIT &&
		    sent < 4 << 20); /* all in the buffers of the socket and the device */
	say(w, &quick, RW, 0, "me too", 6);
	expect_host_hears(&quick, "me too");
	expect_silence(w);

	while ((n = recv(slow.host, sink, sizeof(sink), 0)) > 0) {
		got += (size_t)n;
		drv_run(&w->v);
	}
	assert_int_equal(got, sent);
	expect(w, CREDIT_UPDATE);
	assert_true(w->p.fwd_cnt > 0);
	say(w, &slow, RW, 0, "more", 4);
	expect_host_hears(&slow, "more");
	close(slow.host);
	close(quick.host);
}

/*
 * The socket has a small buffer, and the host reads odd amounts: all bytes pass through the
 * device's ring buffer, which wraps many times.
 */
static void test_slow_host_gets_every_byte_in_order(void **state)
{
	struct world *w = *state;
	w->small_socket = 8192;
	struct peer c = connected(w, 5);
	const uint32_t total = 3u << 20;
	uint32_t said = 0, room = CREDIT, got = 0;
	uint8_t chunk[3001], part[1999];

	while (got < total) {
		while (said < total && said + sizeof(chunk) <= room) {
			for (size_t i = 0; i < sizeof(chunk); i++)
				chunk[i] = (uint8_t)((said + i) * 2654435761u >> 24);
			say(w, &c, RW, 0, chunk, sizeof(chunk));
			said += sizeof(chunk);
		}
		ssize_t n = recv(c.host, part, sizeof(part), 0);
		for (ssize_t i = 0; i < n; i++, got++)
			if (part[i] != (uint8_t)(got * 2654435761u >> 24))
				fail_msg("byte %u is wrong", got);
		while (hear(w)) {
			assert_int_equal(w->p.op, CREDIT_UPDATE);
			room = w->p.fwd_cnt + w->p.buf_alloc;
		}
	}
	close(c.host);
}

static void test_guest_that_exceeds_its_credit_is_reset(void **state)
{
	struct world *w = *state;
	struct peer c = connected(w, 5);
	static uint8_t zeros[65536];

	send_all_credit(w, &c);
	/* The socket may have taken some of the data by now, so up to 33 more packets are
	 * needed. */
	for (int i = 0; i < 33 && !hear(w); i++)
		say(w, &c, RW, 0, zeros, 4096);
	assert_int_equal(w->p.op, RST);
	assert_int_equal(vio_vsock_connections(w->v.dev), 0);
	close(c.host);
}

static void test_credit_request_is_answered(void **state)
{
	struct world *w = *state;
	struct peer c = connected(w, 5);

	say(w, &c, RW, 0, "abc", 3);
	say(w, &c, CREDIT_REQUEST, 0, NULL, 0);
	expect(w, CREDIT_UPDATE);
	assert_int_equal(w->p.fwd_cnt, 3);
	assert_int_equal(w->p.buf_alloc, CREDIT);
	close(c.host);
}

static void test_host_can_close_one_direction(void **state)
{
	struct world *w = *state;
	struct peer c = connected(w, 5);

	host_says(&c, "last");
	shutdown(c.host, SHUT_WR);
	expect(w, RW);
	expect(w, SHUTDOWN);
	assert_int_equal(w->p.flags, 2); /* the host will send no more */
	say(w, &c, RW, 0, "answer", 6);
	expect_host_hears(&c, "answer");
	say(w, &c, SHUTDOWN, 3, NULL, 0);
	expect(w, RST);
	expect_host_eof(&c);
	assert_int_equal(vio_vsock_connections(w->v.dev), 0);
	close(c.host);
}

static void test_guest_can_close_one_direction(void **state)
{
	struct world *w = *state;
	struct peer c = connected(w, 5);

	say(w, &c, RW, 0, "last", 4);
	say(w, &c, SHUTDOWN, 2, NULL, 0);
	expect_host_hears(&c, "last");
	expect_host_eof(&c);
	host_says(&c, "answer");
	expect(w, RW);
	assert_memory_equal(w->p.data, "answer", 6);
	say(w, &c, RW, 0, "x", 1); /* after the guest's own end of data */
	expect(w, RST);
	close(c.host);
}

static void test_guest_can_stop_receiving(void **state)
{
	struct world *w = *state;
	struct peer c = connected(w, 5);

	say(w, &c, SHUTDOWN, 1, NULL, 0);
	assert_int_equal(send(c.host, "x", 1, MSG_NOSIGNAL), -1);
	assert_int_equal(errno, EPIPE);
	say(w, &c, RW, 0, "still", 5);
	expect_host_hears(&c, "still");
	expect_silence(w);
	close(c.host);
	expect(w, SHUTDOWN);
	assert_int_equal(w->p.flags, 3);
}

static void test_end_is_delivered_after_all_data(void **state)
{
	struct world *w = *state;
	struct peer c = connected(w, 5);
	static char sink[1 << 20];
	uint32_t sent = send_all_credit(w, &c);
	size_t got = 0;

	say(w, &c, SHUTDOWN, 3, NULL, 0);
	expect(w, RST);
	assert_int_equal(vio_vsock_connections(w->v.dev), 1); /* the host has yet to read it all */
	while (true) {
		ssize_t n = recv(c.host, sink, sizeof(sink), 0);

		if (n == 0)
			break;
		if (n > 0)
			got += (size_t)n;
		drv_run(&w->v);
	}
	assert_int_equal(got, sent);
	assert_int_equal(vio_vsock_connections(w->v.dev), 0);
	close(c.host);
}

static void test_host_close_ends_the_guests_side(void **state)
{
	struct world *w = *state;
	struct peer c = connected(w, 5), d = connected(w, 6);

	host_says(&c, "bye");
	close(c.host);
	expect(w, RW);
	expect(w, SHUTDOWN);
	assert_int_equal(w->p.flags, 3);
	say(w, &c, RW, 0, "into the void", 13);
	say(w, &c, RST, 0, NULL, 0);
	expect_silence(w);
	assert_int_equal(vio_vsock_connections(w->v.dev), 1);

	close(d.host);
	expect(w, SHUTDOWN);
	skipped_ns += 8100000000ull; /* the guest does not answer */
	expect(w, RST);
	assert_int_equal(vio_vsock_connections(w->v.dev), 0);
}

static void test_host_close_with_unread_data_resets(void **state)
{
	struct world *w = *state;
	struct peer c = connected(w, 5);

	say(w, &c, RW, 0, "unread", 6);
	close(c.host);
	expect(w, RST);
	assert_int_equal(vio_vsock_connections(w->v.dev), 0);
}

static void test_guest_reset_ends_the_hosts_side(void **state)
{
	struct world *w = *state;
	struct peer c = connected(w, 5);

	say(w, &c, RW, 0, "last", 4);
	say(w, &c, RST, 0, NULL, 0);
	expect_host_hears(&c, "last");
	expect_host_eof(&c);
	expect_silence(w);
	assert_int_equal(vio_vsock_connections(w->v.dev), 0);
	close(c.host);
}

static void expect_full(struct world *w, bool vital)
{
	w->vital = vital;
	struct peer over = dial(w, 1);
	assert_int_equal(w->results, 1);
	assert_int_equal(w->result, -EMFILE);
	expect_host_eof(&over);
	close(over.host);
}

/* One place is left free for a connection without which the VM is unusable. */
static void test_number_of_connections_is_limited(void **state)
{
	struct world *w = *state;
	static struct peer c[MAX_CONNS];

	for (int i = 0; i < MAX_CONNS; i++) {
		if (i == MAX_CONNS - 1) {
			expect_full(w, false);
			w->vital = true;
		}
		c[i] = connected(w, 1000 + (uint32_t)i);
		for (int k = 0; k < i; k++)
			assert_int_not_equal(c[i].host_port, c[k].host_port);
	}
	expect_full(w, true);
	for (int i = 0; i < MAX_CONNS; i++)
		host_says(&c[i], "hello");
	for (int i = 0; i < MAX_CONNS; i++) {
		expect(w, RW);
		assert_int_equal(w->p.len, 5);
	}
	close(c[7].host);
	expect(w, SHUTDOWN);
	say(w, &c[7], RST, 0, NULL, 0);
	uint32_t old = c[7].host_port;
	c[7] = connected(w, 1);
	assert_int_not_equal(c[7].host_port, old);
	for (int i = 0; i < MAX_CONNS; i++)
		close(c[i].host);
}

static void test_connections_take_turns(void **state)
{
	struct world *w = *state;
	struct peer c[4];
	int count[4] = {0};

	for (int i = 0; i < 4; i++) {
		c[i] = connected(w, 10 + (uint32_t)i);
		c[i].alloc = 1u << 30;
		say(w, &c[i], CREDIT_UPDATE, 0, NULL, 0);
	}
	/* The first connection fills the buffers that are offered already; from then on the
	 * connections alternate. */
	for (int i = 0; i < RX_BUFS + 40; i++) {
		for (int k = 0; k < 4; k++)
			fill_from_host(&c[k]);
		expect(w, RW);
		if (i >= RX_BUFS)
			count[w->p.dst_port - 10]++;
	}
	for (int i = 0; i < 4; i++) {
		assert_true(count[i] >= 8 && count[i] <= 12);
		close(c[i].host);
	}
}

static void test_number_of_pending_resets_is_limited(void **state)
{
	struct world *w = *state;
	struct peer c = connected(w, 5);
	unsigned resets = 0;

	/* Without receive buffers no answer can be sent, and the device keeps only a limited number
	 * of answers. */
	drv_start(&w->v, DRV_F_EVENT_IDX, 256);
	expect_host_eof(&c);
	close(c.host);
	for (uint32_t i = 0; i < 5000; i++) {
		struct peer none = {.host_port = i, .guest_port = 3};

		say(w, &none, REQUEST, 0, NULL, 0);
	}
	post_buffers(w);
	while (hear(w)) {
		assert_int_equal(w->p.op, RST);
		resets++;
	}
	assert_int_equal(resets, 64);
	c = connected(w, 5);
	close(c.host);
}

/* Saves and resumes the quiesced device, as a fork does. */
static void take_image(struct world *w)
{
	static uint8_t buf[8192];
	struct wire out = wire_on(buf, sizeof(buf));

	assert_true(w->v.dev->quiesced);
	vio_mmio_save(w->v.mmio, &out);
	assert_false(out.bad);
	vio_mmio_continue(w->v.mmio);
}

/*
 * Sends `total` bytes each way. If `forks`, takes a snapshot in each round: the device is quiesced
 * while bytes arrive from both sides.
 */
static void stream(struct world *w, uint64_t total, bool forks)
{
	struct peer c = connected(w, 5);
	uint64_t to_guest = 0, from_guest = 0, sent = 0, said = 0, room = CREDIT;
	static uint8_t chunk[4096], got[65536];

	while (to_guest < total || from_guest < total) {
		if (forks)
			assert_true(vio_mmio_drain(w->v.mmio));
		while (sent < total) {
			size_t n = sizeof(chunk);

			for (size_t i = 0; i < n; i += 8)
				memcpy(chunk + i, &(uint64_t){sent + i}, 8);
			if (sent % 4096) /* the rest of a chunk that was sent in part */
				n = 4096 - sent % 4096;
			ssize_t did = send(c.host, chunk, n & ~7ull, MSG_NOSIGNAL);
			if (did <= 0)
				break;
			assert_int_equal(did % 8, 0);
			sent += (uint64_t)did;
		}
		while (said < total && said + 4096 <= room) {
			for (size_t i = 0; i < 4096; i += 8)
				memcpy(chunk + i, &(uint64_t){said + i}, 8);
			say(w, &c, RW, 0, chunk, 4096);
			said += 4096;
			if (w->v.dev->quiesced)
				break; /* its only buffer is in use until the device continues */
		}
		if (forks)
			take_image(w);
		while (hear(w)) {
			assert_true(w->p.op == RW || w->p.op == CREDIT_UPDATE);
			room = said - (uint32_t)((uint32_t)said - w->p.fwd_cnt) + w->p.buf_alloc;
			for (size_t i = 0; i + 8 <= w->p.len; i += 8)
				if (memcmp(w->p.data + i, &(uint64_t){to_guest + i}, 8))
					fail_msg("bytes at %llu to the guest are wrong",
						 (unsigned long long)(to_guest + i));
			to_guest += w->p.len;
			if (to_guest - c.fwd >= 65536 || to_guest == total) {
				c.fwd = (uint32_t)to_guest;
				say(w, &c, CREDIT_UPDATE, 0, NULL, 0);
			}
		}
		ssize_t n;
		while ((n = recv(c.host, got, sizeof(got), 0)) > 0) {
			for (ssize_t i = 0; i < n; i++) {
				uint64_t at = from_guest + (uint64_t)i;

				if (got[i] != (uint8_t)((at & ~7ull) >> (8 * (at % 8))))
					fail_msg("byte %llu from the guest is wrong",
						 (unsigned long long)at);
			}
			from_guest += (uint64_t)n;
			drv_run(&w->v);
		}
	}
	close(c.host);
}

static void test_large_stream_arrives_intact(void **state)
{
	stream(*state, 100u << 20, false);
}

static void test_forks_lose_no_byte_of_a_stream(void **state)
{
	stream(*state, 8u << 20, true);
}

static void test_drained_device_sends_nothing_until_continue(void **state)
{
	struct world *w = *state;
	struct peer c = connected(w, 5);

	assert_true(vio_mmio_drain(w->v.mmio));
	host_says(&c, "while still");
	expect_silence(w);
	vio_mmio_continue(w->v.mmio);
	expect(w, RW);
	assert_int_equal(w->p.len, 11);
	close(c.host);
}

static void test_reset_drops_connections(void **state)
{
	struct world *w = *state;
	struct peer up = connected(w, 5), asked = dial(w, 6);

	expect(w, REQUEST);
	drv_write(&w->v, DRV_STATUS, 0);
	drv_run(&w->v);
	assert_int_equal(w->result, -ECONNRESET);
	assert_int_equal(w->results, 1);
	expect_host_eof(&up);
	expect_host_eof(&asked);
	assert_int_equal(vio_vsock_connections(w->v.dev), 0);
	close(up.host);
	close(asked.host);
}

static void test_free_fails_pending_requests(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	make_device(w);
	start_driver(w);
	struct peer c = dial(w, 5);
	*state = w;
	drv_fini(&w->v);
	assert_int_equal(w->results, 1);
	assert_int_equal(w->result, -ECONNRESET);
	close(c.host);
	free(w);
}

/* Restores a second VM from the saved state of the first. */
static struct world *restored(struct world *from)
{
	struct world *w = calloc(1, sizeof(*w));
	uint8_t buf[1024];
	struct wire out = wire_on(buf, sizeof(buf));

	assert_true(vio_mmio_drain(from->v.mmio));
	vio_mmio_save(from->v.mmio, &out);
	assert_false(out.bad);
	make_device(w);
	memcpy(w->v.mem.base, from->v.mem.base, w->v.mem.bytes);
	memcpy(w->v.q, from->v.q, sizeof(w->v.q));
	w->v.next_free = from->v.next_free;
	w->tx = from->tx;
	struct wire in = wire_from(buf, out.pos);
	assert_int_equal(vio_mmio_restore(w->v.mmio, &in, NULL), 0);
	return w;
}

static void test_restored_guest_drops_old_connections_before_it_gets_new_ones(void **state)
{
	struct world *parent = *state;
	struct peer old = connected(parent, 5);
	struct world *w = restored(parent);
	uint16_t head;
	uint32_t len;
	uint64_t addr;

	vio_mmio_resumed(w->v.mmio);
	struct peer c = dial(w, 5);
	expect_silence(w); /* nothing is sent before the guest has handled the event */
	assert_true(drv_interrupts(&w->v) > 0);
	assert_true(drv_used(&w->v, EVENT, &head, &len));
	assert_int_equal(len, 4);
	memcpy(&addr, drv_ptr(&w->v, w->v.q[EVENT].desc + 16ull * head), 8);
	assert_memory_equal(drv_ptr(&w->v, addr), "\0\0\0\0", 4);
	drv_offer(&w->v, EVENT, head);
	drv_kick(&w->v, EVENT);
	expect(w, REQUEST);
	assert_int_not_equal(w->p.src_port, old.host_port);
	c.host_port = w->p.src_port;
	say(w, &c, RESPONSE, 0, NULL, 0);
	assert_int_equal(w->result, 0);
	say(w, &old, RW, 0, "old", 3); /* the restored device does not know it */
	expect(w, RST);

	vio_mmio_continue(parent->v.mmio); /* the parent continues unaffected */
	say(parent, &old, RW, 0, "here", 4);
	expect_host_hears(&old, "here");
	close(old.host);
	close(c.host);
	drv_fini(&w->v);
	free(w);
}

static void test_running_guest_drops_its_connections_as_after_a_restore(void **state)
{
	struct world *w = *state;
	struct peer old = connected(w, 5);
	uint16_t head;
	uint32_t len;
	char byte;

	vio_mmio_resumed(w->v.mmio);
	assert_int_equal(read(old.host, &byte, 1), 0);
	close(old.host);
	assert_true(drv_used(&w->v, EVENT, &head, &len));
	struct peer c = dial(w, 5);
	expect_silence(w);
	drv_offer(&w->v, EVENT, head);
	drv_kick(&w->v, EVENT);
	expect(w, REQUEST);
	c.host_port = w->p.src_port;
	say(w, &c, RESPONSE, 0, NULL, 0);
	assert_int_equal(w->result, 0);
	close(c.host);
}

static unsigned given_back(struct world *w)
{
	uint16_t head;
	uint32_t len;
	unsigned n = 0;

	while (drv_used(&w->v, TX, &head, &len))
		n++;
	return n;
}

static void send_credit(struct world *w, const struct peer *c)
{
	struct packet p = {.src_cid = CID,
			   .dst_cid = 2,
			   .src_port = c->guest_port,
			   .dst_port = c->host_port,
			   .type = 1,
			   .op = CREDIT_UPDATE,
			   .buf_alloc = c->alloc};

	offer_raw(w, &p, NULL, 0);
}

/* Used buffers are returned, with one interrupt, when they are a quarter of the queue, after a
 * while, or before the device is saved. */
static void test_used_buffers_are_returned_in_batches(void **state)
{
	struct world *w = *state;
	struct peer c = connected(w, 5);

	skipped_ns += 1000000000;
	drv_run(&w->v);
	given_back(w);
	drv_interrupts(&w->v);
	for (int i = 0; i < 63; i++)
		send_credit(w, &c);
	assert_int_equal(drv_interrupts(&w->v), 0);
	assert_int_equal(given_back(w), 0);
	send_credit(w, &c);
	assert_int_equal(drv_interrupts(&w->v), 1);
	assert_int_equal(given_back(w), 64);

	send_credit(w, &c);
	skipped_ns += 999000000;
	drv_run(&w->v);
	assert_int_equal(given_back(w), 0);
	skipped_ns += 1000000;
	drv_run(&w->v);
	assert_int_equal(drv_interrupts(&w->v), 1);
	assert_int_equal(given_back(w), 1);

	send_credit(w, &c);
	assert_int_equal(given_back(w), 0);
	assert_true(vio_mmio_drain(w->v.mmio));
	assert_int_equal(drv_interrupts(&w->v), 1);
	assert_int_equal(given_back(w), 1);
	close(c.host);
}

/* Used buffers with payload occupy memory of the guest, so only a few bytes are held back. */
static void test_large_buffers_are_returned_sooner(void **state)
{
	static uint8_t data[60000];
	struct world *w = *state;
	struct peer c = connected(w, 5);

	skipped_ns += 1000000000;
	drv_run(&w->v);
	given_back(w);
	for (int i = 0; i < 5; i++) {
		struct packet p = {.src_cid = CID,
				   .dst_cid = 2,
				   .src_port = c.guest_port,
				   .dst_port = c.host_port,
				   .len = sizeof(data),
				   .type = 1,
				   .op = RW,
				   .buf_alloc = c.alloc};
		assert_int_equal(given_back(w), 0);
		offer_raw(w, &p, data, sizeof(data));
		assert_int_equal(recv(c.host, data, sizeof(data), MSG_WAITALL), sizeof(data));
	}
	assert_int_equal(given_back(w), 5);
	close(c.host);
}

/* A driver with a small queue gets each buffer back at once. */
static void test_buffers_of_a_small_queue_are_returned_at_once(void **state)
{
	struct world *w = *state;
	struct packet p = {.src_cid = CID, .dst_cid = 2, .dst_port = 9, .type = 1, .op = RW};

	drv_start(&w->v, DRV_F_EVENT_IDX, 2);
	given_back(w);
	offer_raw(w, &p, NULL, 0);
	assert_int_equal(given_back(w), 1);
}

static void test_restore_refuses_invalid_fields(void **state)
{
	struct world *w = *state, *other = calloc(1, sizeof(*other));
	uint8_t buf[1024];
	struct wire out = wire_on(buf, sizeof(buf));
	struct err e = {0};

	assert_true(vio_mmio_drain(w->v.mmio));
	vio_mmio_save(w->v.mmio, &out);
	make_device(other);
	memset(buf + out.pos - 4, 0xff, 4); /* serial number of the next host port */
	struct wire in = wire_from(buf, out.pos);
	assert_true(vio_mmio_restore(other->v.mmio, &in, &e) < 0);
	assert_non_null(strstr(e.text, "out of range"));
	drv_fini(&other->v);
	free(other);
}

static uint32_t advertised_size(struct world *w, unsigned queue)
{
	drv_write(&w->v, DRV_QUEUE_SEL, queue);
	return drv_read(&w->v, DRV_QUEUE_MAX);
}

static void test_receive_queue_is_advertised_as_small(void **state)
{
	assert_int_equal(advertised_size(*state, RX), 64);
	assert_int_equal(advertised_size(*state, TX), 256);
	assert_int_equal(advertised_size(*state, EVENT), 256);
}

/* Snapshots made when the device still advertised 256 receive buffers can be restored. */
static void test_image_with_a_larger_receive_queue_is_restored(void **state)
{
	struct world *w = *state;

	drv_negotiate(&w->v, 0);
	drv_write(&w->v, DRV_QUEUE_SEL, RX);
	drv_write(&w->v, DRV_QUEUE_NUM, 256);
	drv_write(&w->v, DRV_QUEUE_DESC, (uint32_t)drv_alloc(&w->v, 16 * 256, 16));
	drv_write(&w->v, DRV_QUEUE_AVAIL, (uint32_t)drv_alloc(&w->v, 6 + 2 * 256, 2));
	drv_write(&w->v, DRV_QUEUE_USED, (uint32_t)drv_alloc(&w->v, 6 + 8 * 256, 4));
	drv_write(&w->v, DRV_QUEUE_READY, 1);
	assert_int_equal(drv_read(&w->v, DRV_QUEUE_READY), 1);
	struct world *copy = restored(w);
	drv_write(&copy->v, DRV_QUEUE_SEL, RX);
	assert_int_equal(drv_read(&copy->v, DRV_QUEUE_READY), 1);
	drv_fini(&copy->v);
	free(copy);
}

static const char *report_of(struct world *w)
{
	static char text[1 << 16];
	struct report r = report_on(text, sizeof(text));

	vio_mmio_inspect(w->v.mmio, &r);
	return text;
}

static void has(const char *report, const char *text)
{
	if (!strstr(report, text))
		fail_msg("no \"%s\" in:\n%s", text, report);
}

/* The report shows that the guest takes no more data, and how much waits in the socket. */
static void test_report_shows_the_credit(void **state)
{
	struct world *w = *state;
	struct peer c = dial(w, 5);
	const char *report;

	c.alloc = 10000;
	expect(w, REQUEST);
	has(report_of(w), " to guest port 5: requested\n");
	c.host_port = w->p.src_port;
	say(w, &c, RESPONSE, 0, NULL, 0);
	assert_true(fill_from_host(&c) > 12000);
	while (hear(w) && w->p.op == RW)
		;
	say(w, &c, RW, 0, "four", 4);
	report = report_of(w);
	has(report, "device vsock: status 0xf, active, interrupt status ");
	has(report, "\n  queue 2: size 256, avail 4, taken 0 (4 wait), used 0");
	has(report, "\n  1 connections, 0 resets wait, ");
	has(report, " to guest port 5: up, asked for credit\n");
	has(report, "to the guest: its buf_alloc 10000, its fwd_cnt 0, our tx_cnt 10000 (10000 in "
		    "flight), ");
	has(report,
	    "from the guest: our buf_alloc 262144, our fwd_cnt 4 (credited 4), its tx_cnt 4, 0 "
	    "bytes wait here, ");
	assert_null(strstr(report, " 0 bytes wait in the socket"));
	assert_null(strstr(report, " 0 in buffers that the service has to read"));
	close(c.host);
}

static void test_report_lists_a_limited_number_of_connections(void **state)
{
	struct world *w = *state;

	for (unsigned i = 0; i < 43; i++)
		close(dial(w, 1000 + i).host);
	assert_null(strstr(report_of(w), "guest port 1040"));
	has(report_of(w), " to guest port 1039: requested");
	has(report_of(w), "\n  and 3 connections more\n");
}

/* A vCPU may hold the lock and never release it. */
static void test_report_does_not_wait_for_the_lock(void **state)
{
	struct world *w = *state;

	vio_enter(w->v.dev);
	assert_string_equal(report_of(w),
			    "device vsock: not shown, since a vCPU thread holds its lock\n");
	vio_leave(w->v.dev);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_data_passes_both_ways),
		T(test_refused_connection_is_reported),
		T(test_unanswered_request_times_out),
		T(test_request_is_cancelled_when_the_caller_closes),
		cmocka_unit_test(test_request_waits_for_the_driver),
		T(test_packet_without_a_connection_is_reset),
		T(test_invalid_packet_resets_its_connection),
		T(test_packet_with_a_wrong_length_is_a_fault),
		T(test_receive_buffer_without_room_is_a_fault),
		T(test_data_to_the_guest_stays_within_its_credit),
		T(test_host_that_does_not_read_applies_back_pressure),
		T(test_slow_host_gets_every_byte_in_order),
		T(test_guest_that_exceeds_its_credit_is_reset),
		T(test_credit_request_is_answered),
		T(test_host_can_close_one_direction),
		T(test_guest_can_close_one_direction),
		T(test_guest_can_stop_receiving),
		T(test_end_is_delivered_after_all_data),
		T(test_host_close_ends_the_guests_side),
		T(test_host_close_with_unread_data_resets),
		T(test_guest_reset_ends_the_hosts_side),
		T(test_number_of_connections_is_limited),
		T(test_connections_take_turns),
		T(test_number_of_pending_resets_is_limited),
		T(test_large_stream_arrives_intact),
		T(test_forks_lose_no_byte_of_a_stream),
		T(test_drained_device_sends_nothing_until_continue),
		T(test_reset_drops_connections),
		cmocka_unit_test(test_free_fails_pending_requests),
		T(test_restored_guest_drops_old_connections_before_it_gets_new_ones),
		T(test_running_guest_drops_its_connections_as_after_a_restore),
		T(test_used_buffers_are_returned_in_batches),
		T(test_large_buffers_are_returned_sooner),
		T(test_buffers_of_a_small_queue_are_returned_at_once),
		T(test_restore_refuses_invalid_fields),
		T(test_receive_queue_is_advertised_as_small),
		T(test_image_with_a_larger_receive_queue_is_restored),
		T(test_report_shows_the_credit),
		T(test_report_lists_a_limited_number_of_connections),
		T(test_report_does_not_wait_for_the_lock),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
