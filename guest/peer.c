// SPDX-License-Identifier: Apache-2.0
#include "guest/peer.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/num.h"
#include "guest/frame.h"
#include "guest/send.h"

static struct {
	int fd;
	size_t out_len;
	uint8_t out[2 * FRAME_MAX];
	uint64_t data_left;  /* of what the host is to send, in all frames */
	uint32_t frame_left; /* of the frame that is being read */
	size_t header_have;
	uint8_t header[AGENT_HEADER_SIZE];
	uint8_t in[FRAME_MAX];
} peer;

void peer_init(int fd, const void *unsent, size_t len)
{
	peer.fd = fd;
	if (len)
		memcpy(peer.out, unsent, len);
	peer.out_len = len;
}

/* --- answers -------------------------------------------------------------------------------- */

static void wait_for(short events)
{
	struct pollfd p = {.fd = peer.fd, .events = events};

	poll(&p, 1, -1);
}

void peer_flush(void)
{
	size_t done = 0;

	while (done < peer.out_len) {
		ssize_t n = send_some(peer.fd, peer.out + done, peer.out_len - done);

		if (n >= 0)
			done += (size_t)n;
		else if (errno == EAGAIN)
			wait_for(POLLOUT);
		else if (errno != EINTR)
			_exit(1); /* the host went away */
	}
	peer.out_len = 0;
}

static void make_room(size_t payload)
{
	if (sizeof(peer.out) - peer.out_len < AGENT_HEADER_SIZE + payload)
		peer_flush();
}

uint8_t *peer_room(void)
{
	make_room(AGENT_PAYLOAD_MAX);
	return peer.out + peer.out_len + AGENT_HEADER_SIZE;
}

void peer_send(uint8_t type, size_t len)
{
	frame_header(peer.out + peer.out_len, type, (uint32_t)len);
	peer.out_len += AGENT_HEADER_SIZE + len;
}

struct wire peer_frame(uint8_t type, size_t len)
{
	make_room(len);
	uint8_t *at = peer.out + peer.out_len + AGENT_HEADER_SIZE;
	peer_send(type, len);
	return wire_on(at, len);
}

/* --- data ----------------------------------------------------------------------------------- */

void peer_expect(uint64_t size)
{
	peer.data_left = size;
}

static size_t receive(void *buf, size_t len)
{
	for (;;) {
		ssize_t n = recv(peer.fd, buf, len, 0);

		if (n > 0)
			return (size_t)n;
		if (n < 0 && errno == EAGAIN)
			wait_for(POLLIN);
		else if (n == 0 || errno != EINTR)
			_exit(1);
	}
}

static void take_header(void)
{
	struct wire w = wire_from(peer.header, sizeof(peer.header));

	peer.frame_left = wire_get_u32(&w);
	peer.header_have = 0;
	if (wire_get_u8(&w) != AGENT_DATA || wire_get_u8(&w) || wire_get_u16(&w) ||
	    !peer.frame_left || peer.frame_left > AGENT_PAYLOAD_MAX ||
	    peer.frame_left > peer.data_left)
		_exit(1); /* breaks the protocol */
}

static void read_header(void)
{
	while (peer.header_have < AGENT_HEADER_SIZE)
		peer.header_have += receive(peer.header + peer.header_have,
					    AGENT_HEADER_SIZE - peer.header_have);
	take_header();
}

/* Reads to the end of a frame and the header of the next one with it, but never further: what
 * comes after the data is the agent's. */
size_t peer_data(const uint8_t **data)
{
	if (!peer.data_left)
		return 0;
	if (!peer.frame_left)
		read_header();
	bool more = peer.data_left > peer.frame_left;
	size_t got = receive(peer.in, peer.frame_left + (more ? AGENT_HEADER_SIZE : 0));
	size_t n = min_u64(got, peer.frame_left);
	peer.data_left -= n;
	peer.frame_left -= (uint32_t)n;
	peer.header_have = got - n;
	memcpy(peer.header, peer.in + n, got - n);
	*data = peer.in;
	return n;
}

/* --- the end -------------------------------------------------------------------------------- */

__attribute__((noreturn)) static void end(void)
{
	const uint8_t *data;

	peer_flush();
	while (peer_data(&data))
		;
	_exit(0);
}

void peer_done(void)
{
	peer_frame(AGENT_DONE, 0);
	end();
}

void peer_fail(int errnum, const char *format, ...)
{
	char text[ERR_TEXT_MAX];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	struct wire w = peer_frame(AGENT_ERROR, 4 + 4 + strlen(text));
	wire_put_u32(&w, (uint32_t)errnum);
	wire_put_str(&w, text, strlen(text));
	end();
}
