// SPDX-License-Identifier: Apache-2.0
/*
 * Output-only console device (virtio v1.2, 5.3). What the guest writes goes to a log, line by line,
 * escaped and rate-limited. The receive queue stays empty.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "vmm/virtio/device.h"

enum { QUEUE_RX, QUEUE_TX, QUEUES };

#define QUEUE_SIZE  64
#define LINE_BYTES  1000   /* an escaped line, below PIPE_BUF: a write never blocks half-way */
#define CHAIN_BYTES 65536u /* bytes used of one buffer chain; the rest counts as dropped */
#define TURN_BYTES  (4 * CHAIN_BYTES)
#define BURST_S	    64 /* seconds of output that a burst may contain */
/* Maximum of the guest's output in the log. When the log is full, it is truncated. */
#define LOG_BYTES (1u << 20)

struct console {
	struct vio_dev dev;
	int log_fd;
	uint64_t bytes_per_s;
	uint64_t tokens; /* bytes that may be written now */
	uint64_t filled_ns;
	uint64_t dropped; /* bytes of output dropped since the last report */
	size_t written;	  /* bytes written since the log was truncated */
	size_t len;
	char line[LINE_BYTES + 1]; /* with room for the newline */
};

static struct console *self(struct vio_dev *d)
{
	return (struct console *)d;
}

static void refill(struct console *c)
{
	uint64_t most = c->bytes_per_s * BURST_S, now = now_ns(), elapsed, add;

	elapsed = now - c->filled_ns;
	if (elapsed > BURST_S * 1000000000ull)
		elapsed = BURST_S * 1000000000ull;
	add = elapsed / 1000 * c->bytes_per_s / 1000000;
	if (!add)
		return; /* less than one byte: let it accumulate */
	c->filled_ns = now;
	c->tokens = c->tokens + add < most ? c->tokens + add : most;
}

/* True when the log accepts a line without blocking. */
static bool log_is_ready(const struct console *c)
{
	struct pollfd p = {.fd = c->log_fd, .events = POLLOUT};

	return poll(&p, 1, 0) == 1 && (p.revents & POLLOUT);
}

/*
 * Truncates the log: a guest that writes for days must not fill the file system that all logs
 * share, and its latest output counts most. A log that is a pipe is left as it is.
 */
static void begin_anew(struct console *c)
{
	if (ftruncate(c->log_fd, 0) == 0)
		log_info("the guest's console: the log was full, earlier output is discarded");
	c->written = 0;
}

static bool emit(struct console *c, const char *text, size_t len)
{
	if (c->tokens < len || !log_is_ready(c))
		return false;
	c->tokens -= len;
	if (c->written + len > LOG_BYTES)
		begin_anew(c);
	c->written += len;
	return write(c->log_fd, text, len) == (ssize_t)len;
}

static bool report_dropped(struct console *c)
{
	char text[64];
	int len;

	if (!c->dropped)
		return true;
	len = snprintf(text, sizeof(text), "[%llu bytes dropped]\n",
		       (unsigned long long)c->dropped);
	if (!emit(c, text, (size_t)len))
		return false;
	c->dropped = 0;
	return true;
}

static void end_line(struct console *c)
{
	refill(c);
	c->line[c->len] = '\n';
	if (!report_dropped(c) || !emit(c, c->line, c->len + 1))
		c->dropped += c->len + 1;
	c->len = 0;
}

/*
 * True for bytes that are logged as they are. In UTF-8, U+0080 to U+009F are control characters
 * too: their second byte is escaped.
 */
static bool is_plain(const struct console *c, uint8_t byte)
{
	uint8_t before = c->len ? (uint8_t)c->line[c->len - 1] : 0;

	if (byte >= 0x80 && byte < 0xa0)
		return before >= 0x80 && before != 0xc2;
	return (byte >= 0x20 && byte != 0x7f) || byte == '\t';
}

/* Escapes control bytes, which could control the terminal of a person who reads the log. */
static void put(struct console *c, uint8_t byte)
{
	static const char hex[] = "0123456789abcdef";

	if (byte == '\r')
		return;
	if (byte == '\n') {
		end_line(c);
		return;
	}
	if (c->len + 4 > LINE_BYTES)
		end_line(c);
	if (is_plain(c, byte)) {
		c->line[c->len++] = (char)byte;
		return;
	}
	memcpy(c->line + c->len, (char[]){'\\', 'x', hex[byte >> 4], hex[byte & 15]}, 4);
	c->len += 4;
}

static size_t take_chain(struct console *c, const struct vq_chain *chain)
{
	size_t most = chain->out_bytes < CHAIN_BYTES ? chain->out_bytes : CHAIN_BYTES;
	uint8_t chunk[512];

	for (size_t at = 0; at < most;) {
		size_t want = most - at < sizeof(chunk) ? most - at : sizeof(chunk);
		size_t got = iov_read(vq_out(chain), chain->nout, at, chunk, want);

		for (size_t i = 0; i < got; i++)
			put(c, chunk[i]);
		at += got;
	}
	c->dropped += chain->out_bytes - most;
	return most;
}

static void console_on_kick(struct vio_dev *d, unsigned queue)
{
	struct console *c = self(d);
	struct vq_chain chain;
	size_t taken = 0;
	unsigned left = QUEUE_SIZE;

	if (queue != QUEUE_TX)
		return;
	for (; left && taken < TURN_BYTES && vio_pop_or_wait(d, queue, &chain); left--) {
		taken += take_chain(c, &chain);
		vq_push(&d->vq[queue], chain.head, 0);
	}
	vio_notify(d, queue);
	if (!left || taken >= TURN_BYTES)
		vio_rekick(d, queue);
}

static void console_reset(struct vio_dev *d)
{
	if (self(d)->len)
		end_line(self(d));
}

static void console_fini(struct vio_dev *d)
{
	console_reset(d);
	close_fd(&self(d)->log_fd);
}

static const struct vio_ops console_ops = {
	.name = "console",
	.id = 3,
	.queues = QUEUES,
	.queue_size = QUEUE_SIZE,
	.reset = console_reset,
	.on_kick = console_on_kick,
	.fini = console_fini,
};

int vio_console_new(struct vio_dev **out, const struct gm *mem, struct event_loop *loop, int log_fd,
		    uint64_t bytes_per_s, struct err *e)
{
	struct console *c = calloc(1, sizeof(*c));

	if (!c)
		return err_set(e, ENOMEM, "make the console device");
	c->dev = (struct vio_dev){.ops = &console_ops, .mem = mem, .loop = loop};
	c->log_fd = log_fd;
	c->bytes_per_s = bytes_per_s;
	c->tokens = bytes_per_s * BURST_S;
	*out = &c->dev;
	return 0;
}
