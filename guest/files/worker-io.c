// SPDX-License-Identifier: Apache-2.0
#include "guest/files/worker-io.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
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
	bool unsized;	     /* the host marks the end of the data */
	uint64_t data_left;  /* bytes that the host has yet to send; if unsized, not 0 */
	uint32_t frame_left; /* bytes that are missing of the frame being read */
	size_t header_have;
	uint8_t header[AGENT_HEADER_SIZE];
	uint8_t in[FRAME_MAX];
} io;

void worker_io_init(int fd, const void *unsent, size_t len)
{
	io.fd = fd;
	if (len)
		memcpy(io.out, unsent, len);
	io.out_len = len;
}

/* --- answers -------------------------------------------------------------------------------- */

static void wait_for(short events)
{
	struct pollfd p = {.fd = io.fd, .events = events};

	poll(&p, 1, -1);
}

void worker_io_flush(void)
{
	size_t done = 0;

	while (done < io.out_len) {
		ssize_t n = send_some(io.fd, io.out + done, io.out_len - done);

		if (n >= 0)
			done += (size_t)n;
		else if (errno == EAGAIN)
			wait_for(POLLOUT);
		else if (errno != EINTR)
			_exit(1); /* the host went away */
	}
	io.out_len = 0;
}

static void make_room(size_t payload)
{
	if (sizeof(io.out) - io.out_len < AGENT_HEADER_SIZE + payload)
		worker_io_flush();
}

uint8_t *worker_io_room(void)
{
	make_room(AGENT_PAYLOAD_MAX);
	return io.out + io.out_len + AGENT_HEADER_SIZE;
}

void worker_io_send(uint8_t type, size_t len)
{
	frame_header(io.out + io.out_len, type, (uint32_t)len);
	io.out_len += AGENT_HEADER_SIZE + len;
}

struct wire worker_io_frame(uint8_t type, size_t len)
{
	make_room(len);
	uint8_t *at = io.out + io.out_len + AGENT_HEADER_SIZE;
	worker_io_send(type, len);
	return wire_on(at, len);
}

/* --- data ----------------------------------------------------------------------------------- */

void worker_io_expect(uint64_t size)
{
	io.unsized = size == AGENT_UNSIZED;
	io.data_left = size;
}

static size_t receive(void *buf, size_t len)
{
	for (;;) {
		ssize_t n = recv(io.fd, buf, len, 0);

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
	struct wire w = wire_from(io.header, sizeof(io.header));

	io.frame_left = wire_get_u32(&w);
	io.header_have = 0;
	if (wire_get_u8(&w) != AGENT_DATA || wire_get_u8(&w) || wire_get_u16(&w) ||
	    (!io.frame_left && !io.unsized) || io.frame_left > AGENT_PAYLOAD_MAX ||
	    io.frame_left > io.data_left)
		_exit(1); /* breaks the protocol */
}

static void read_header(void)
{
	while (io.header_have < AGENT_HEADER_SIZE)
		io.header_have +=
			receive(io.header + io.header_have, AGENT_HEADER_SIZE - io.header_have);
	take_header();
}

/* Reads to the end of a frame, together with the header of the next one, but never beyond the data:
 * the agent reads what follows. */
size_t worker_io_data(const uint8_t **data)
{
	if (!io.data_left)
		return 0;
	if (!io.frame_left)
		read_header();
	if (!io.frame_left) {
		io.data_left = 0; /* the end of unsized data */
		return 0;
	}
	bool more = io.data_left > io.frame_left;
	size_t got = receive(io.in, io.frame_left + (more ? AGENT_HEADER_SIZE : 0));
	size_t n = min_u64(got, io.frame_left);
	io.data_left -= io.unsized ? 0 : n;
	io.frame_left -= (uint32_t)n;
	io.header_have = got - n;
	memcpy(io.header, io.in + n, got - n);
	*data = io.in;
	return n;
}

/* --- the end -------------------------------------------------------------------------------- */

__attribute__((noreturn)) static void end(void)
{
	const uint8_t *data;

	worker_io_flush();
	while (worker_io_data(&data))
		;
	_exit(0);
}

void worker_io_done(void)
{
	worker_io_frame(AGENT_DONE, 0);
	end();
}

void worker_io_fail(int errnum, const char *format, ...)
{
	char text[ERR_TEXT_MAX];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	struct wire w = worker_io_frame(AGENT_ERROR, 4 + 4 + strlen(text));
	wire_put_u32(&w, (uint32_t)errnum);
	wire_put_str(&w, text, strlen(text));
	end();
}
