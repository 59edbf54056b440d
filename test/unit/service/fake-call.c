// SPDX-License-Identifier: Apache-2.0
#include "test/unit/service/fake-call.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "base/wire.h"
#include "proto/agent.h"

#define AHEAD_MAX (256u << 10)
#define CHUNK	  5000

enum { GARBAGE = 0, HANG_UP = 1 }; /* types of parts that are not frames */

struct part {
	uint8_t type;
	size_t len;
	uint8_t *data;
};

struct fake_call {
	uint64_t number;
	char *script, *env;
	const struct fake_call_ops *ops;
	void *guest;
	pthread_t thread;
	bool started;

	pthread_mutex_t lock;
	pthread_cond_t changed;
	size_t at;   /* offset of the running line in the script */
	size_t done; /* bytes that this line has written */
	/* The turn that ends the wait of the line; 0 if it does not wait. A copy of the call waits
	 * for the same turn, even if its thread starts late. */
	unsigned long turn;
	int exit_code;
	bool over, dead, attached, skip_waits;
	int fd; /* of the attached connection */
	struct part *parts;
	size_t n, room;
	uint64_t total, sent; /* bytes of output */
};

/* --- frames --------------------------------------------------------------------------------- */

bool fake_send_all(int fd, const void *data, size_t len)
{
	const char *p = data;

	while (len) {
		ssize_t n = send(fd, p, len, MSG_NOSIGNAL);

		if (n <= 0)
			return false;
		p += n;
		len -= (size_t)n;
	}
	return true;
}

bool fake_send_frame(int fd, uint8_t type, const void *payload, size_t len)
{
	uint8_t head[AGENT_HEADER_SIZE];
	struct wire w = wire_on(head, sizeof(head));

	wire_put_u32(&w, (uint32_t)len);
	wire_put_u8(&w, type);
	wire_put_u8(&w, 0);
	wire_put_u16(&w, 0);
	return fake_send_all(fd, head, sizeof(head)) && fake_send_all(fd, payload, len);
}

bool fake_send_done(int fd)
{
	return fake_send_frame(fd, AGENT_DONE, NULL, 0);
}

bool fake_send_errno(int fd, uint32_t errnum, const char *text)
{
	uint8_t body[128];
	struct wire w = wire_on(body, sizeof(body));

	wire_put_u32(&w, errnum);
	wire_put_str(&w, text, strlen(text));
	return fake_send_frame(fd, AGENT_ERROR, body, w.pos);
}

bool fake_send_error(int fd, uint32_t errnum)
{
	return fake_send_errno(fd, errnum, "as requested");
}

/* --- the script ----------------------------------------------------------------------------- */

static bool is_output(uint8_t type)
{
	return type == AGENT_STDOUT || type == AGENT_STDERR || type == AGENT_BUNDLE ||
	       type == AGENT_RESULT || type == AGENT_FAULT;
}

static void add_part(struct fake_call *c, uint8_t type, const void *data, size_t len)
{
	if (c->n == c->room) {
		c->room = c->room ? 2 * c->room : 16;
		c->parts = realloc(c->parts, c->room * sizeof(*c->parts));
	}
	struct part *p = &c->parts[c->n++];
	*p = (struct part){.type = type, .len = len, .data = malloc(len + 1)};
	memcpy(p->data, data, len);
	c->total += is_output(type) ? len : 0;
}

/* Changes output and script position atomically, so that a copy of the guest is consistent. */
static bool append_output(struct fake_call *c, uint8_t type, const void *data, size_t len,
			  size_t at, size_t done)
{
	pthread_mutex_lock(&c->lock);
	while (c->total - c->sent > AHEAD_MAX && !c->dead && !c->skip_waits)
		pthread_cond_wait(&c->changed, &c->lock);
	bool goes_on = !c->dead;
	if (goes_on) {
		add_part(c, type, data, len);
		c->at = at;
		c->done = done;
	}
	pthread_cond_broadcast(&c->changed);
	pthread_mutex_unlock(&c->lock);
	return goes_on;
}

static bool put_line(struct fake_call *c, uint8_t type, const char *text, size_t next)
{
	char line[2048];
	int len = snprintf(line, sizeof(line), "%s\n", text);

	return append_output(c, type, line, (size_t)len, next, 0);
}

/* Writes `len` bytes of 'x', of which the last one of each `line` is a newline; 0: none. */
static bool put_big(struct fake_call *c, uint8_t type, size_t len, size_t line, size_t next)
{
	char block[CHUNK];

	for (size_t done = c->done; done < len;) {
		size_t part = len - done < sizeof(block) ? len - done : sizeof(block);

		for (size_t i = 0; i < part; i++)
			block[i] = line && (done + i + 1) % line == 0 ? '\n' : 'x';
		done += part;
		if (!append_output(c, type, block, part, done < len ? c->at : next,
				   done < len ? done : 0))
			return false;
	}
	return true;
}

static bool put_lines(struct fake_call *c, const char *numbers, size_t next)
{
	size_t n = 0, size = 0;

	sscanf(numbers, "%zu %zu", &n, &size);
	return put_big(c, AGENT_STDOUT, n * (size + 1), size + 1, next);
}

/* Begins a bundle whose only entry has `len` bytes, which follow. */
static bool open_bundle(struct fake_call *c, size_t len, size_t next)
{
	uint8_t head[32];
	struct wire w = wire_on(head, sizeof(head));

	wire_put_str(&w, "x/y", 3);
	wire_put_u8(&w, AGENT_BUNDLE_BYTES);
	wire_put_u32(&w, (uint32_t)len);
	return append_output(c, AGENT_BUNDLE, head, w.pos, next, 0);
}

static bool step(struct fake_call *c, size_t next)
{
	pthread_mutex_lock(&c->lock);
	c->at = next;
	c->done = 0;
	c->turn = 0;
	bool goes_on = !c->dead;
	pthread_mutex_unlock(&c->lock);
	return goes_on;
}

static bool run_line(struct fake_call *c, const char *line, size_t next)
{
	if (!strncmp(line, "out ", 4))
		return put_line(c, AGENT_STDOUT, line + 4, next);
	if (!strncmp(line, "err ", 4))
		return put_line(c, AGENT_STDERR, line + 4, next);
	if (!strncmp(line, "raw ", 4))
		return append_output(c, AGENT_STDOUT, line + 4, strlen(line + 4), next, 0);
	if (!strncmp(line, "big ", 4))
		return put_big(c, AGENT_STDOUT, strtoul(line + 4, NULL, 10), 0, next);
	if (!strncmp(line, "lines ", 6))
		return put_lines(c, line + 6, next);
	if (!strncmp(line, "open ", 5))
		return open_bundle(c, strtoul(line + 5, NULL, 10), next);
	if (!strncmp(line, "more ", 5))
		return put_big(c, AGENT_BUNDLE, strtoul(line + 5, NULL, 10), 0, next);
	if (!strncmp(line, "result ", 7))
		return append_output(c, AGENT_RESULT, &(char){(char)(line[7] - '0')}, 1, next, 0);
	if (!strcmp(line, "fault"))
		return append_output(c, AGENT_FAULT, "", 1, next, 0);
	if (!strcmp(line, "env"))
		return put_line(c, AGENT_STDOUT, c->env, next);
	if (!strncmp(line, "mark ", 5))
		c->ops->mark(c->guest, line + 5);
	if (!strcmp(line, "marked"))
		return put_line(c, AGENT_STDOUT, c->ops->mark(c->guest, NULL), next);
	if (!strcmp(line, "garbage"))
		return append_output(c, GARBAGE, "\xff\xff\xff\xff\xff\xff\xff\xff", 8, next, 0);
	if (!strcmp(line, "hang-up"))
		return append_output(c, HANG_UP, "", 0, next, 0) && false;
	if (!strncmp(line, "exit ", 5))
		c->exit_code = atoi(line + 5);
	if (!strncmp(line, "tree ", 5))
		c->ops->tree(c->guest, line + 5);
	if (!strcmp(line, "die"))
		c->ops->die(c->guest);
	if (!strcmp(line, "wait") && !c->ops->wait(c->guest, &c->turn))
		return false;
	return strcmp(line, "die") != 0 && step(c, next);
}

static void *run(void *arg)
{
	struct fake_call *c = arg;
	bool goes_on = true;
	uint8_t body[5];

	while (goes_on && c->script[c->at]) {
		const char *start = c->script + c->at;
		size_t len = strcspn(start, "\n");
		char line[1024];

		snprintf(line, sizeof(line), "%.*s", (int)(len < 1000 ? len : 1000), start);
		goes_on = run_line(c, line, c->at + len + (start[len] == '\n'));
	}
	struct wire w = wire_on(body, sizeof(body));
	wire_put_u32(&w, (uint32_t)c->exit_code);
	wire_put_u8(&w, 0);
	pthread_mutex_lock(&c->lock);
	if (goes_on)
		add_part(c, AGENT_EXIT, body, sizeof(body));
	c->over = true;
	pthread_cond_broadcast(&c->changed);
	pthread_mutex_unlock(&c->lock);
	return NULL;
}

/* --- life ----------------------------------------------------------------------------------- */

struct fake_call *fake_call_new(uint64_t number, const char *script, const char *env)
{
	struct fake_call *c = calloc(1, sizeof(*c));

	c->number = number;
	c->script = strdup(script);
	c->env = strdup(env);
	pthread_mutex_init(&c->lock, NULL);
	pthread_cond_init(&c->changed, NULL);
	return c;
}

struct fake_call *fake_call_copy(struct fake_call *from)
{
	struct fake_call *c = fake_call_new(from->number, from->script, from->env);

	pthread_mutex_lock(&from->lock);
	c->at = from->at;
	c->done = from->done;
	c->turn = from->turn;
	c->exit_code = from->exit_code;
	c->over = from->over;
	for (size_t i = 0; i < from->n; i++)
		add_part(c, from->parts[i].type, from->parts[i].data, from->parts[i].len);
	c->sent = from->sent;
	pthread_mutex_unlock(&from->lock);
	return c;
}

void fake_call_start(struct fake_call *c, const struct fake_call_ops *ops, void *guest)
{
	c->ops = ops;
	c->guest = guest;
	c->started = true;
	pthread_create(&c->thread, NULL, run, c);
}

void fake_call_kill(struct fake_call *c)
{
	pthread_mutex_lock(&c->lock);
	c->dead = true;
	pthread_cond_broadcast(&c->changed);
	pthread_mutex_unlock(&c->lock);
}

void fake_call_free(struct fake_call *c)
{
	if (!c)
		return;
	if (c->started)
		pthread_join(c->thread, NULL);
	for (size_t i = 0; i < c->n; i++)
		free(c->parts[i].data);
	free(c->parts);
	free(c->script);
	free(c->env);
	pthread_mutex_destroy(&c->lock);
	pthread_cond_destroy(&c->changed);
	free(c);
}

bool fake_call_is_over(struct fake_call *c)
{
	pthread_mutex_lock(&c->lock);
	bool over = c->over;
	pthread_mutex_unlock(&c->lock);
	return over;
}

uint64_t fake_call_number(const struct fake_call *c)
{
	return c->number;
}

void fake_call_wait(struct fake_call *c)
{
	pthread_mutex_lock(&c->lock);
	c->skip_waits = true;
	pthread_cond_broadcast(&c->changed);
	while (!c->over && !c->dead)
		pthread_cond_wait(&c->changed, &c->lock);
	pthread_mutex_unlock(&c->lock);
}

/* Returns true when the host has closed its end of the connection. */
static bool host_is_gone(int fd)
{
	char byte;

	return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

/* --- attached connections ------------------------------------------------------------------- */

/* Sends part `i` from byte `skip` on. Returns false when the connection must be closed. Called with
 * the lock held, which is released while sending. */
static bool send_part(struct fake_call *c, int fd, size_t i, size_t skip)
{
	uint8_t type = c->parts[i].type, *data = c->parts[i].data;
	size_t len = c->parts[i].len;
	bool sent = false;

	c->sent += is_output(type) ? len - skip : 0; /* counted before the host can receive it */
	pthread_cond_broadcast(&c->changed);
	pthread_mutex_unlock(&c->lock);
	if (type == GARBAGE)
		sent = fake_send_all(fd, data, len);
	else if (type != HANG_UP)
		sent = fake_send_frame(fd, type, data + skip, len - skip);
	pthread_mutex_lock(&c->lock);
	return sent;
}

/* Waits 2 ms at most, because nothing signals `changed` when a connection ends. */
static void wait_a_little(struct fake_call *c)
{
	struct timespec at;

	clock_gettime(CLOCK_REALTIME, &at);
	at.tv_nsec += 2000000;
	at.tv_sec += at.tv_nsec / 1000000000;
	at.tv_nsec %= 1000000000;
	pthread_cond_timedwait(&c->changed, &c->lock, &at);
}

static bool pump(struct fake_call *c, int fd, uint64_t from)
{
	size_t i = 0;

	for (;; i++) {
		while (i == c->n && !c->over && !c->dead && !host_is_gone(fd))
			wait_a_little(c);
		if (i == c->n || c->dead)
			return false;
		uint8_t type = c->parts[i].type;
		size_t len = is_output(type) ? c->parts[i].len : 0;
		if (from && from >= len) {
			from -= len;
			continue;
		}
		if (!send_part(c, fd, i, (size_t)from))
			return false;
		from = 0;
		if (type == AGENT_EXIT)
			return true;
	}
}

bool fake_call_pump(struct fake_call *c, int fd, uint64_t from, int *refused)
{
	pthread_mutex_lock(&c->lock);
	while (c->attached && host_is_gone(c->fd))
		wait_a_little(c);
	*refused = c->attached ? -EBUSY : from > c->sent ? -ERANGE : 0;
	bool well = false;
	if (!*refused) {
		c->attached = true;
		c->fd = fd;
		c->sent = from;
		well = pump(c, fd, from);
		c->attached = false;
	}
	pthread_mutex_unlock(&c->lock);
	return well;
}
