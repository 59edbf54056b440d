// SPDX-License-Identifier: Apache-2.0
/* The answers that the network device makes itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "driver.h"
#include "vmm/virtio/net-internal.h"

/* The clock is stopped; a test advances it. */
static uint64_t skipped_s;
int __wrap_clock_gettime(clockid_t id, struct timespec *t);

int __wrap_clock_gettime(clockid_t id, struct timespec *t)
{
	*t = (struct timespec){.tv_sec = (time_t)(1000 + skipped_s)};
	return 0;
}

#define RX_BYTES 1600

static const uint8_t guest_mac[6] = NET_GUEST_MAC, gateway_mac[6] = NET_GATEWAY_MAC;

struct world {
	struct drv v;
	int tap;
	uint64_t tx, rx;
};

static void make(struct world *w, bool ipv6)
{
	struct vio_dev *dev;
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds),
			 0);
	memset(w, 0, sizeof(*w));
	drv_init(&w->v, 1 << 20);
	assert_int_equal(vio_net_new(&dev, &w->v.mem, w->v.loop, fds[1], ipv6, NULL), 0);
	drv_attach(&w->v, dev);
	w->tap = fds[0];
	w->tx = drv_alloc(&w->v, 4096, 64);
	w->rx = drv_alloc(&w->v, 64 * RX_BYTES, 64);
}

static void start(struct world *w, bool ipv6)
{
	make(w, ipv6);
	drv_start(&w->v, NET_F(MRG_RXBUF), 64);
}

static void stop(struct world *w)
{
	close(w->tap);
	drv_fini(&w->v);
}

static void offer_rx(struct world *w, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		drv_add(&w->v, NET_QUEUE_RX,
			&(struct drv_buf){w->rx + (uint64_t)w->v.q[0].next_desc * RX_BYTES,
					  RX_BYTES, true},
			1);
	drv_kick(&w->v, NET_QUEUE_RX);
	drv_run(&w->v);
}

static size_t receive(struct world *w, uint8_t *frame)
{
	uint16_t head;
	uint32_t len;

	if (!drv_used(&w->v, NET_QUEUE_RX, &head, &len))
		return 0;
	memcpy(frame, drv_ptr(&w->v, w->rx + (uint64_t)head * RX_BYTES + NET_HDR_BYTES),
	       len - NET_HDR_BYTES);
	return len - NET_HDR_BYTES;
}

/* Sends a frame that the device answers itself: the tap must not get it. */
static void send_frame(struct world *w, const uint8_t *frame, size_t len)
{
	uint8_t heard[2000];
	uint16_t head;
	uint32_t used;

	memset(drv_ptr(&w->v, w->tx), 0, NET_HDR_BYTES);
	memcpy(drv_ptr(&w->v, w->tx + NET_HDR_BYTES), frame, len);
	drv_add(&w->v, NET_QUEUE_TX,
		&(struct drv_buf){w->tx, (uint32_t)(NET_HDR_BYTES + len), false}, 1);
	drv_kick(&w->v, NET_QUEUE_TX);
	drv_run(&w->v);
	assert_true(drv_used(&w->v, NET_QUEUE_TX, &head, &used));
	assert_int_equal(recv(w->tap, heard, sizeof(heard), MSG_DONTWAIT), -1);
}

/* --- DHCP --- */

enum { DISCOVER = 1, OFFER, REQUEST, DECLINE, ACK, NAK, RELEASE, INFORM };

struct ask {
	uint8_t message;
	const char *ciaddr, *address, *server;
	bool broadcast;
	const char *client_id;
};

#define BOOTP 42 /* offset in the frame */

static uint32_t ip(const char *text)
{
	return inet_addr(text);
}

static uint8_t *option(uint8_t *p, uint8_t code, uint8_t len, const void *value)
{
	p[0] = code;
	p[1] = len;
	memcpy(p + 2, value, len);
	return p + 2 + len;
}

static uint8_t *address_option(uint8_t *p, uint8_t code, const char *text)
{
	uint32_t a;

	if (!text)
		return p;
	a = ip(text);
	return option(p, code, 4, &a);
}

static size_t make_request(uint8_t *f, const struct ask *a)
{
	uint8_t *b = f + BOOTP, *p = b + 240;
	size_t len;

	memset(f, 0, 600);
	memset(f, 0xff, 6);
	memcpy(f + 6, guest_mac, 6);
	net_put16(f + 12, 0x0800);
	f[14] = 0x45;
	f[22] = 64;
	f[23] = 17;
	memset(f + 30, 0xff, 4);
	net_put16(f + 34, 68);
	net_put16(f + 36, 67);
	b[0] = 1;
	b[1] = 1;
	b[2] = 6;
	memcpy(b + 4, "\x12\x34\x56\x78", 4);
	net_put16(b + 10, a->broadcast ? 0x8000 : 0);
	if (a->ciaddr)
		memcpy(b + 12, &(uint32_t){ip(a->ciaddr)}, 4);
	memcpy(b + 28, guest_mac, 6);
	memcpy(b + 236, "\x63\x82\x53\x63", 4);
	p = option(p, 53, 1, &a->message);
	p = address_option(p, 50, a->address);
	p = address_option(p, 54, a->server);
	if (a->client_id)
		p = option(p, 61, (uint8_t)strlen(a->client_id), a->client_id);
	p = option(p, 55, 4, "\1\3\6\32");
	*p++ = 255;
	len = (size_t)(p - f);
	net_put16(f + 16, (uint16_t)(len - 14));
	net_put16(f + 38, (uint16_t)(len - 34));
	return len;
}

/* Returns the value of an option of an answer; NULL when it is absent. */
static const uint8_t *find(const uint8_t *f, size_t len, uint8_t code, uint8_t *value_len)
{
	for (size_t at = BOOTP + 240; at < len && f[at] != 255;) {
		if (!f[at]) {
			at++;
			continue;
		}
		*value_len = f[at + 1];
		assert_true(at + 2 + f[at + 1] <= len);
		if (f[at] == code)
			return f + at + 2;
		at += 2u + f[at + 1];
	}
	return NULL;
}

static uint32_t option32(const uint8_t *f, size_t len, uint8_t code)
{
	uint8_t n = 0;
	const uint8_t *p = find(f, len, code, &n);
	uint32_t v;

	assert_non_null(p);
	assert_int_equal(n, 4);
	memcpy(&v, p, 4);
	return v;
}

static uint32_t get32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, 4);
	return v;
}

/* Checks the fields that are the same in all answers, and the checksums. */
static void check_answer(const uint8_t *f, size_t len)
{
	uint16_t udp = net_get16(f + 38);
	uint32_t pseudo;

	assert_memory_equal(f + 6, gateway_mac, 6);
	assert_int_equal(net_get16(f + 12), 0x0800);
	assert_int_equal(f[14], 0x45);
	assert_int_equal(net_get16(f + 16), len - 14);
	assert_int_equal(net_sum_fold(net_sum(f + 14, 20)), 0);
	assert_int_equal(get32(f + 26), ip(NET_GATEWAY_IPV4));
	assert_int_equal(net_get16(f + 34), 67);
	assert_int_equal(net_get16(f + 36), 68);
	assert_int_equal(udp, len - 34);
	pseudo = net_sum(f + 26, 8) + 17 + udp;
	assert_int_equal(net_sum_fold(pseudo + net_sum(f + 34, udp)), 0);
	assert_true(len - BOOTP >= 300);
	assert_int_equal(f[BOOTP], 2);
	assert_memory_equal(f + BOOTP + 4, "\x12\x34\x56\x78", 4);
	assert_memory_equal(f + BOOTP + 28, guest_mac, 6);
	assert_int_equal(option32(f, len, 54), ip(NET_GATEWAY_IPV4));
}

/* Sends a request and writes the answer to `answer`. Returns the type of its message; 0 if there is
 * none. */
static uint8_t ask(struct world *w, const struct ask *a, uint8_t *answer, size_t *len)
{
	uint8_t f[600], n = 0;

	send_frame(w, f, make_request(f, a));
	*len = receive(w, answer);
	if (!*len)
		return 0;
	check_answer(answer, *len);
	return find(answer, *len, 53, &n)[0];
}

static void check_network(const uint8_t *f, size_t len)
{
	uint8_t n = 0;
	const uint8_t *mtu = find(f, len, 26, &n);

	assert_int_equal(option32(f, len, 1), ip("255.255.255.252"));
	assert_int_equal(option32(f, len, 3), ip(NET_GATEWAY_IPV4));
	assert_int_equal(option32(f, len, 6), ip(NET_GATEWAY_IPV4));
	assert_int_equal(option32(f, len, 28), ip("192.168.252.3"));
	assert_non_null(mtu);
	assert_int_equal(net_get16(mtu), NET_MTU);
}

static void test_discover_and_request_get_a_lease(void **state)
{
	struct world w;
	uint8_t f[2000], n;
	size_t len;

	start(&w, false);
	offer_rx(&w, 8);
	assert_int_equal(ask(&w, &(struct ask){DISCOVER, .client_id = "\1abcdef"}, f, &len), OFFER);
	assert_memory_equal(f, guest_mac, 6);
	assert_int_equal(get32(f + 30), ip(NET_GUEST_IPV4));
	assert_int_equal(get32(f + BOOTP + 16), ip(NET_GUEST_IPV4));
	assert_int_equal(option32(f, len, 51), UINT32_MAX);
	check_network(f, len);
	assert_memory_equal(find(f, len, 61, &n), "\1abcdef", 7);
	assert_int_equal(n, 7);

	const struct ask select = {REQUEST, .address = NET_GUEST_IPV4, .server = NET_GATEWAY_IPV4,
				   .broadcast = true};
	assert_int_equal(ask(&w, &select, f, &len), ACK);
	assert_int_equal(get32(f), UINT32_MAX);
	assert_int_equal(get32(f + 30), UINT32_MAX);
	assert_int_equal(get32(f + BOOTP + 16), ip(NET_GUEST_IPV4));
	assert_int_equal(option32(f, len, 51), UINT32_MAX);
	check_network(f, len);
	assert_null(find(f, len, 61, &n));
	stop(&w);
}

static void test_lease_can_be_renewed(void **state)
{
	struct world w;
	uint8_t f[2000];
	size_t len;

	start(&w, false);
	offer_rx(&w, 8);
	assert_int_equal(ask(&w, &(struct ask){REQUEST, .address = NET_GUEST_IPV4}, f, &len), ACK);
	assert_int_equal(ask(&w, &(struct ask){REQUEST, .ciaddr = NET_GUEST_IPV4}, f, &len), ACK);
	assert_int_equal(get32(f + BOOTP + 12), ip(NET_GUEST_IPV4));
	assert_int_equal(get32(f + 30), ip(NET_GUEST_IPV4));
	stop(&w);
}

static void test_requests_for_other_addresses_are_refused(void **state)
{
	const struct ask wrong[] = {
		{REQUEST, .address = "10.0.0.5"},
		{REQUEST, .ciaddr = "10.0.0.5"},
		{REQUEST, .address = "192.168.252.1", .server = NET_GATEWAY_IPV4},
		{.message = REQUEST},
	};
	struct world w;
	uint8_t f[2000], n;
	size_t len;

	start(&w, false);
	offer_rx(&w, 8);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		assert_int_equal(ask(&w, &wrong[i], f, &len), NAK);
		assert_int_equal(get32(f + 30), UINT32_MAX);
		assert_int_equal(get32(f + BOOTP + 16), 0);
		assert_null(find(f, len, 51, &n));
		assert_null(find(f, len, 3, &n));
	}
	stop(&w);
}

static void test_inform_gets_the_network_parameters(void **state)
{
	struct world w;
	uint8_t f[2000], n;
	size_t len;

	start(&w, false);
	offer_rx(&w, 8);
	assert_int_equal(ask(&w, &(struct ask){INFORM, .ciaddr = NET_GUEST_IPV4}, f, &len), ACK);
	assert_int_equal(get32(f + BOOTP + 16), 0);
	assert_null(find(f, len, 51, &n));
	check_network(f, len);
	stop(&w);
}

static void test_other_dhcp_messages_get_no_answer(void **state)
{
	const struct ask quiet[] = {
		{RELEASE, .ciaddr = NET_GUEST_IPV4, .server = NET_GATEWAY_IPV4},
		{DECLINE, .address = NET_GUEST_IPV4},
		{REQUEST, .address = NET_GUEST_IPV4, .server = "10.0.0.1"},
		{.message = OFFER},
		{.message = 0},
		{.message = 99},
	};
	struct world w;
	uint8_t f[2000];
	size_t len;

	start(&w, false);
	offer_rx(&w, 8);
	for (size_t i = 0; i < sizeof(quiet) / sizeof(*quiet); i++)
		assert_int_equal(ask(&w, &quiet[i], f, &len), 0);
	assert_int_equal(ask(&w, &(struct ask){.message = DISCOVER}, f, &len), OFFER);
	stop(&w);
}

/* Truncates a request at each length, and changes each byte: nothing is read past the end, and each
 * answer is valid. */
static void test_damaged_requests_are_handled_safely(void **state)
{
	const struct ask a = {REQUEST, .address = NET_GUEST_IPV4, .server = NET_GATEWAY_IPV4,
			      .client_id = "\1abcdef"};
	uint8_t f[600], answer[NET_ANSWER_BYTES];
	size_t len = make_request(f, &a), answered = 0;

	for (size_t cut = 0; cut < len; cut++) {
		uint8_t *copy = malloc(cut + 1);

		memcpy(copy, f, cut);
		if (net_is_dhcp(copy, cut))
			assert_int_equal(net_dhcp_answer(copy, cut, answer), 0);
		free(copy);
	}
	for (size_t at = 0; at < len; at++) {
		for (unsigned value = 0; value < 256; value += 5) {
			uint8_t *copy = malloc(len);
			size_t n = 0;

			memcpy(copy, f, len);
			copy[at] = (uint8_t)value;
			if (net_is_dhcp(copy, len))
				n = net_dhcp_answer(copy, len, answer);
			assert_true(n <= sizeof(answer));
			answered += n > 0;
			free(copy);
		}
	}
	assert_true(answered > 1000);
}

/* Packets with another port, protocol or fragment offset are not for the device. */
static void test_other_packets_are_not_dhcp(void **state)
{
	uint8_t f[600], other[600];
	size_t len = make_request(f, &(struct ask){.message = DISCOVER});
	static const struct {
		size_t at;
		uint8_t value;
	} change[] = {{37, 68}, {36, 1}, {23, 6}, {13, 6}, {14, 0x65}, {14, 0x44}, {21, 1}};

	assert_true(net_is_dhcp(f, len));
	for (size_t i = 0; i < sizeof(change) / sizeof(*change); i++) {
		memcpy(other, f, sizeof(f));
		other[change[i].at] = change[i].value;
		assert_false(net_is_dhcp(other, len));
	}
	assert_false(net_is_dhcp(f, 41));
}

static void test_answer_waits_for_a_buffer(void **state)
{
	struct world w;
	uint8_t f[2000];
	size_t len;

	start(&w, false);
	assert_int_equal(ask(&w, &(struct ask){.message = DISCOVER}, f, &len), 0);
	offer_rx(&w, 1);
	assert_true(receive(&w, f) > 0);
	offer_rx(&w, 1);
	assert_int_equal(receive(&w, f), 0); /* the answer is sent once */
	stop(&w);
}

/* --- IPv6 --- */

static size_t make_solicitation(uint8_t *f)
{
	memset(f, 0, 70);
	memcpy(f, "\x33\x33\0\0\0\2", 6);
	memcpy(f + 6, guest_mac, 6);
	net_put16(f + 12, 0x86dd);
	f[14] = 0x60;
	net_put16(f + 18, 16);
	f[20] = 58;
	f[21] = 255;
	inet_pton(AF_INET6, "fe80::52:41ff:fe4d:4554", f + 22);
	inet_pton(AF_INET6, "ff02::2", f + 38);
	f[54] = 133;
	f[62] = 1;
	f[63] = 1;
	memcpy(f + 64, guest_mac, 6);
	return 70;
}

static void check_advertisement(const uint8_t *f, size_t len, unsigned lifetime)
{
	uint8_t a[16];

	assert_int_equal(len, 14 + 40 + 64);
	assert_memory_equal(f, "\x33\x33\0\0\0\1", 6);
	assert_memory_equal(f + 6, gateway_mac, 6);
	assert_int_equal(net_get16(f + 12), 0x86dd);
	assert_int_equal(net_get16(f + 18), 64);
	assert_int_equal(f[20], 58);
	assert_int_equal(f[21], 255);
	inet_pton(AF_INET6, "fe80::52:41ff:fe4d:4501", a); /* from the gateway's MAC address */
	assert_memory_equal(f + 22, a, 16);
	assert_int_equal(net_sum_fold(net_sum(f + 22, 32) + 64 + 58 + net_sum(f + 54, 64)), 0);
	assert_int_equal(f[54], 134);
	assert_int_equal(net_get16(f + 60), lifetime);
	assert_memory_equal(f + 70, "\1\1", 2);
	assert_memory_equal(f + 72, gateway_mac, 6);
	assert_memory_equal(f + 78, "\5\1\0\0\0\0", 6);
	assert_int_equal(net_get16(f + 84), NET_MTU);
	assert_memory_equal(f + 86, "\3\4\100\300", 4);
	assert_memory_equal(f + 90, "\xff\xff\xff\xff\xff\xff\xff\xff", 8);
	inet_pton(AF_INET6, "fd52:616d:6574::", a);
	assert_memory_equal(f + 102, a, 16);
}

static void test_router_is_advertised_on_request_and_repeatedly(void **state)
{
	uint8_t f[2000];
	struct world w;

	start(&w, true);
	offer_rx(&w, 8);
	assert_int_equal(receive(&w, f), 0); /* nothing is sent without a request */
	send_frame(&w, f, make_solicitation(f));
	check_advertisement(f, receive(&w, f), 65535);
	/* The advertisement is sent again, long before a guest's entry expires. */
	skipped_s += 7 * 3600;
	drv_run(&w.v);
	check_advertisement(f, receive(&w, f), 65535);
	assert_int_equal(receive(&w, f), 0);
	stop(&w);
}

static void test_no_router_is_advertised_without_ipv6(void **state)
{
	uint8_t f[2000];
	struct world w;

	start(&w, false);
	offer_rx(&w, 8);
	send_frame(&w, f, make_solicitation(f));
	assert_int_equal(receive(&w, f), 0);
	stop(&w);
}

static void test_other_packets_are_not_solicitations(void **state)
{
	uint8_t f[70];
	static const struct {
		size_t at;
		uint8_t value;
	} change[] = {{13, 0}, {14, 0x40}, {20, 17}, {21, 254}, {54, 134}, {55, 1}};

	for (size_t i = 0; i < sizeof(change) / sizeof(*change); i++) {
		make_solicitation(f);
		assert_true(net_is_solicitation(f, 70));
		assert_true(net_is_solicitation(f, 62));
		assert_false(net_is_solicitation(f, 61));
		f[change[i].at] = change[i].value;
		assert_false(net_is_solicitation(f, 70));
	}
}

/* Restores a snapshot in `child`. `before`, `after`: IPv6 is available at the save, at the
 * restore. */
static void restore_elsewhere(bool before, bool after, struct world *child)
{
	uint8_t f[2000], saved[512];
	struct wire out = wire_on(saved, sizeof(saved)), in;
	struct world w;

	start(&w, before);
	offer_rx(&w, 8);
	send_frame(&w, f, make_solicitation(f));
	receive(&w, f);
	assert_true(vio_mmio_drain(w.v.mmio));
	vio_mmio_save(w.v.mmio, &out);
	make(child, after);
	memcpy(child->v.mem.base, w.v.mem.base, w.v.mem.bytes);
	memcpy(child->v.q, w.v.q, sizeof(w.v.q));
	in = wire_from(saved, out.pos);
	assert_int_equal(vio_mmio_restore(child->v.mmio, &in, NULL), 0);
	vio_mmio_resumed(child->v.mmio);
	drv_run(&child->v);
	stop(&w);
}

static void test_restore_advertises_or_withdraws_the_router(void **state)
{
	struct world child;
	uint8_t f[2000];

	restore_elsewhere(true, true, &child);
	assert_int_equal(receive(&child, f), 0);
	skipped_s += 7 * 3600;
	drv_run(&child.v);
	check_advertisement(f, receive(&child, f), 65535);
	stop(&child);
	restore_elsewhere(false, true, &child);
	check_advertisement(f, receive(&child, f), 65535);
	stop(&child);
	restore_elsewhere(true, false, &child);
	check_advertisement(f, receive(&child, f), 0);
	skipped_s += 7 * 3600;
	drv_run(&child.v);
	assert_int_equal(receive(&child, f), 0);
	stop(&child);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_discover_and_request_get_a_lease),
		cmocka_unit_test(test_lease_can_be_renewed),
		cmocka_unit_test(test_requests_for_other_addresses_are_refused),
		cmocka_unit_test(test_inform_gets_the_network_parameters),
		cmocka_unit_test(test_other_dhcp_messages_get_no_answer),
		cmocka_unit_test(test_damaged_requests_are_handled_safely),
		cmocka_unit_test(test_other_packets_are_not_dhcp),
		cmocka_unit_test(test_answer_waits_for_a_buffer),
		cmocka_unit_test(test_router_is_advertised_on_request_and_repeatedly),
		cmocka_unit_test(test_no_router_is_advertised_without_ipv6),
		cmocka_unit_test(test_other_packets_are_not_solicitations),
		cmocka_unit_test(test_restore_advertises_or_withdraws_the_router),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
