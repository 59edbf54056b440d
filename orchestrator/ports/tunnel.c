// SPDX-License-Identifier: Apache-2.0
/*
 * Connections to servers in guests. Each has its own connection to the guest's agent, which carries
 * plain bytes after AGENT_DIAL, and one buffer for each direction.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/alloc.h"
#include "base/elements.h"
#include "base/fd.h"
#include "base/num.h"
#include "base/wire.h"
#include "orchestrator/agent/agent.h"
#include "orchestrator/ports/internal.h"
#include "orchestrator/sandbox/op.h"
#include "orchestrator/sandbox/service.h"
#include "orchestrator/sandbox/tenant.h"
#include "orchestrator/store/keys.h"
#include "orchestrator/vm/dial.h"

#define TUNNELS_MAX	128  /* connections at once in a sandbox; the agent allows as many */
#define ALL_TUNNELS_MAX 1024 /* each has buffers of up to 192 KiB */
/* Visitors, whose access depends on shares, leave half of both to tenants. */
#define VISITS_MAX	(TUNNELS_MAX / 2)
#define ALL_VISITS_MAX	(ALL_TUNNELS_MAX / 2)
#define DIAL_LIMIT_MS	30000
#define ANSWER_LIMIT_MS 10000 /* time for the server to accept the connection */
#define TOUCH_MS	1000
#define BUFFER_BYTES	65536u

struct tunnel_op {
	struct op op;
	struct tunnel *tunnel; /* NULL once put away */
};

/* Bytes that wait to be sent. */
struct pending {
	uint8_t *bytes;
	size_t len, room;
};

struct tunnel {
	struct list link; /* in ports_of(sandbox)->tunnels */
	/* In ports_of_service(service)->visits, if the port's share gives access. */
	struct list visit;
	/* NULL: the tunnel has ended, and waits for operations in flight */
	struct op *op;
	struct sandbox *sandbox; /* NULL once it has left its sandbox */
	struct service *service;
	struct loop *loop;
	struct port_sink sink;
	uint16_t port;
	bool by_share;
	uint64_t visitor; /* number of the client's address, if by_share */
	enum { DIALING, ASKING, OPEN } state;
	struct dial *dial;
	int fd;
	struct loop_op *recv_op, *send_op;
	struct pending queued, sending;
	bool paused, eof, ending, ended;
	unsigned busy; /* nesting of callbacks; 0: may be freed */
	uint64_t moved_ms, touched_ms;
	struct loop_timer deadline; /* for the dial, for the answer, and against silence */
	struct loop_timer pull;	    /* hands out what was received during a pause */
	size_t have;		    /* bytes in buf that were not handed out */
	uint8_t buf[BUFFER_BYTES];
};

static struct tunnel_op *call_of(struct op *op)
{
	return container_of(op, struct tunnel_op, op);
}

static void count(const struct tunnel *t, int by)
{
	ports_of(t->sandbox)->n_tunnels += (unsigned)by;
	ports_of_tenant(t->sandbox->owner)->tunnels += (size_t)by;
	ports_of_service(t->service)->tunnels += (size_t)by;
	if (!t->by_share)
		return;
	ports_of(t->sandbox)->visits += (size_t)by;
	ports_of_tenant(t->sandbox->owner)->visits += (size_t)by;
	ports_of_service(t->service)->n_visits += (size_t)by;
}

static void free_if_idle(struct tunnel *t)
{
	if (t->op || t->recv_op || t->send_op || t->busy)
		return;
	close_fd(&t->fd);
	free(t->queued.bytes);
	free(t->sending.bytes);
	free(t);
}

/* --- end ------------------------------------------------------------------------------------ */

/* Closes the connection and detaches it from its sandbox. */
static void leave(struct tunnel *t)
{
	if (!t->sandbox)
		return;
	list_del(&t->link);
	list_del(&t->visit);
	count(t, -1);
	t->sandbox = NULL;
	dial_cancel(t->dial);
	t->dial = NULL;
	loop_timer_clear(t->loop, &t->deadline);
	loop_timer_clear(t->loop, &t->pull);
	if (t->recv_op)
		loop_cancel(t->loop, t->recv_op);
	if (t->send_op)
		loop_cancel(t->loop, t->send_op);
	/* The guest sees the end even while an operation is in flight. */
	if (t->fd >= 0)
		shutdown(t->fd, SHUT_RDWR);
}

static void put_away(struct op *op)
{
	struct tunnel *t = call_of(op)->tunnel;

	if (!t)
		return;
	call_of(op)->tunnel = NULL;
	leave(t);
	t->op = NULL;
	free_if_idle(t);
}

static void finished(struct op *op)
{
	struct tunnel *t = call_of(op)->tunnel;
	struct sandbox *s = t->sandbox;

	ports_of_service(op->service)->failures += op->failed;
	leave(t);
	if (s)
		sandbox_touch(s);
}

static void abandon(struct op *op)
{
	struct sandbox *s = call_of(op)->tunnel->sandbox;

	op->abandoned = true;
	if (!s)
		return; /* nobody listens to the end, which is about to be reported */
	leave(call_of(op)->tunnel);
	sandbox_touch(s);
	op_free(op);
}

static void fail(struct tunnel *t, enum failure_code code, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
static void fail(struct tunnel *t, enum failure_code code, const char *format, ...)
{
	char text[ERR_TEXT_MAX];
	struct failure f;
	va_list args;

	if (!t->sandbox)
		return;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	failure_set(&f, code, code == FAIL_TOO_MANY || code == FAIL_NO_MEMORY ? 1 : 0, "%s", text);
	op_finish(t->op, &f);
}

static void end_if_over(struct tunnel *t)
{
	if (t->sandbox && t->eof && t->ended)
		op_finish(t->op, NULL); /* reported later, never from here */
}

void tunnels_fail(struct sandbox *s, const struct failure *f)
{
	list_each_of_safe (t, struct tunnel, link, &ports_of(s)->tunnels)
		op_finish(t->op, f);
}

void tunnels_end_shared(struct sandbox *s, uint16_t port)
{
	list_each_of_safe (t, struct tunnel, link, &ports_of(s)->tunnels)
		if (t->by_share && t->port == port)
			fail(t, FAIL_NOT_SHARED, "port %u of sandbox %s is no longer shared", port,
			     s->id);
}

void service_port_end_unserved(struct service *c)
{
	list_each_of_safe (t, struct tunnel, visit, &ports_of_service(c)->visits)
		if (!keys_serve(c->keys, t->sandbox->tenant))
			fail(t, FAIL_NOT_SHARED, "port %u of sandbox %s is no longer shared",
			     t->port, t->sandbox->id);
}

void tunnels_free(struct sandbox *s)
{
	list_each_of_safe (t, struct tunnel, link, &ports_of(s)->tunnels)
		op_free(t->op);
}

/* --- silence -------------------------------------------------------------------------------- */

static void on_deadline(void *arg)
{
	struct tunnel *t = arg;
	uint64_t limit_ms = t->service->config.port_idle_timeout_s * 1000ull;
	uint64_t quiet_ms = loop_now_ms(t->loop) - t->moved_ms;

	if (t->state != OPEN)
		fail(t, FAIL_PORT_SILENT,
		     "the server on port %u in the sandbox did not accept a connection within %d s",
		     t->port, ANSWER_LIMIT_MS / 1000);
	else if (quiet_ms < limit_ms)
		loop_timer_set(t->loop, &t->deadline, limit_ms - quiet_ms);
	else
		fail(t, FAIL_PORT_SILENT,
		     "nothing passed through the connection to port %u in the sandbox for %u s",
		     t->port, t->service->config.port_idle_timeout_s);
}

/* Notes that bytes passed; touches the sandbox at most once per TOUCH_MS. */
static void note_moved(struct tunnel *t)
{
	t->moved_ms = loop_now_ms(t->loop);
	if (t->moved_ms - t->touched_ms < TOUCH_MS || !t->sandbox)
		return;
	t->touched_ms = t->moved_ms;
	sandbox_touch(t->sandbox);
}

/* --- bytes of the server -------------------------------------------------------------------- */

static void receive(struct tunnel *t);

static bool may_hand_out(const struct tunnel *t)
{
	return t->sandbox && !t->paused;
}

static void open_tunnel(struct tunnel *t)
{
	t->state = OPEN;
	note_moved(t);
	if (t->service->config.port_idle_timeout_s)
		loop_timer_set(t->loop, &t->deadline,
			       t->service->config.port_idle_timeout_s * 1000ull);
	else
		loop_timer_clear(t->loop, &t->deadline);
	t->sink.connected(t->op->arg);
}

static void refused(struct tunnel *t, const struct agent_frame *frame)
{
	enum failure_code code = frame->errnum == EAGAIN ? FAIL_TOO_MANY : FAIL_PORT_CLOSED;
	/* A sentence of a hostile guest must not look like one of the service. */
	if (frame->errnum == ECONNREFUSED)
		fail(t, code, "nothing listens on port %u in the sandbox", t->port);
	else if (code == FAIL_TOO_MANY)
		fail(t, code,
		     "%d connections to ports of this sandbox are open, which is the limit",
		     TUNNELS_MAX);
	else
		fail(t, code, "port %u in the sandbox can't be connected to: %s", t->port,
		     strerror((int)min_u64(frame->errnum, 4095)));
}

/* Reads the agent's answer to AGENT_DIAL. The bytes after it are the server's. */
static void read_answer(struct tunnel *t)
{
	struct agent_frame frame;
	struct err e;
	ssize_t took = agent_frame_read(t->buf, t->have, &frame, &e);

	if (took == 0 && t->have < sizeof(t->buf))
		return;
	if (took > 0 && frame.type == AGENT_ERROR) {
		refused(t, &frame);
	} else if (took > 0 && frame.type == AGENT_DONE) {
		t->have -= (size_t)took;
		memmove(t->buf, t->buf + took, t->have);
		open_tunnel(t);
	} else {
		fail(t, FAIL_PORT_LOST,
		     "sandbox %s: its guest's agent sent a frame that is not expected here",
		     t->sandbox->id);
	}
}

static void hand_out(struct tunnel *t)
{
	t->busy++;
	if (t->have && t->sandbox && t->state == ASKING)
		read_answer(t);
	if (t->have && may_hand_out(t) && t->state == OPEN) {
		size_t len = t->have;

		t->have = 0;
		ports_of_service(t->service)->bytes_to_client += len;
		t->sink.data(t->op->arg, t->buf, len);
	}
	if (t->sandbox && (!t->paused || t->state != OPEN))
		receive(t);
	t->busy--;
	free_if_idle(t);
}

static void on_eof(struct tunnel *t, int error)
{
	if (t->state != OPEN) {
		fail(t, FAIL_PORT_LOST,
		     "the guest's agent closed the connection: a sandbox that was made before an "
		     "upgrade of Ramet has no ports");
		return;
	}
	if (error) {
		fail(t, FAIL_PORT_LOST, "the connection to port %u in the sandbox broke: %s",
		     t->port, strerror(-error));
		return;
	}
	t->eof = true;
	t->busy++;
	t->sink.eof(t->op->arg);
	end_if_over(t);
	t->busy--;
}

static void on_received(void *arg, int result)
{
	struct tunnel *t = arg;

	t->recv_op = NULL;
	if (t->sandbox && result > 0) {
		note_moved(t);
		t->have += (size_t)result;
		hand_out(t);
		return;
	}
	if (t->sandbox)
		on_eof(t, result);
	free_if_idle(t);
}

static void receive(struct tunnel *t)
{
	/* After a pause of the reader, all that was read must be handed out first. */
	if (t->recv_op || t->eof || t->fd < 0 || (t->have && t->state == OPEN))
		return;
	t->recv_op = loop_recv(t->loop, t->fd, t->buf + t->have, sizeof(t->buf) - t->have,
			       on_received, t);
}

static void pull(void *arg)
{
	hand_out(arg);
}

static void set_paused(struct op *op, bool paused)
{
	struct tunnel *t = call_of(op)->tunnel;

	if (t->paused == paused || !t->sandbox)
		return;
	t->paused = paused;
	if (!paused)
		loop_timer_set(t->loop, &t->pull, 0);
}

/* --- bytes of the client -------------------------------------------------------------------- */

static void send_next(struct tunnel *t);

static void on_sent(void *arg, int result)
{
	struct tunnel *t = arg;

	t->send_op = NULL;
	t->sending.len = 0;
	if (t->sandbox && result >= 0) {
		note_moved(t);
		t->busy++;
		send_next(t);
		if (!t->send_op && !t->ending && t->state == OPEN)
			t->sink.sent(t->op->arg);
		t->busy--;
	} else if (t->sandbox && t->state == OPEN && !t->eof) {
		/* The server takes no more, but may still answer. */
		t->ending = t->ended = true;
		t->queued.len = 0;
		t->busy++;
		t->sink.sent(t->op->arg);
		t->busy--;
	}
	free_if_idle(t);
}

static void send_next(struct tunnel *t)
{
	struct pending empty = t->sending;

	if (t->send_op || !t->sandbox)
		return;
	if (t->queued.len) {
		t->sending = t->queued;
		t->queued = empty;
		t->send_op =
			loop_send(t->loop, t->fd, t->sending.bytes, t->sending.len, on_sent, t);
		return;
	}
	if (!t->ending || t->ended)
		return;
	shutdown(t->fd, SHUT_WR);
	t->ended = true;
	end_if_over(t);
}

static bool queue(struct tunnel *t, const void *data, size_t len)
{
	struct pending *q = &t->queued;

	if (q->room - q->len < len) {
		void *more = realloc(q->bytes, q->len + len);

		if (!more)
			return false;
		q->bytes = more;
		q->room = q->len + len;
	}
	memcpy(q->bytes + q->len, data, len);
	q->len += len;
	return true;
}

bool service_port_send(struct op *op, const void *data, size_t len)
{
	struct tunnel *t = call_of(op)->tunnel;

	if (!t->sandbox || t->ending)
		return false;
	if (!queue(t, data, len)) {
		fail(t, FAIL_NO_MEMORY, "the service has no memory for the request");
		return false;
	}
	ports_of_service(t->service)->bytes_to_guest += len;
	send_next(t);
	return true;
}

void service_port_redirect(struct op *op, const struct port_sink *sink, void *arg)
{
	call_of(op)->tunnel->sink = *sink;
	op->done_fn = sink->ended;
	op->arg = arg;
}

void service_port_end(struct op *op)
{
	struct tunnel *t = call_of(op)->tunnel;

	t->ending = true;
	send_next(t);
}

/* --- start ---------------------------------------------------------------------------------- */

static void on_dialed(void *arg, int fd, const char *text)
{
	struct tunnel *t = arg;
	uint8_t request[AGENT_HEADER_SIZE + 2];
	struct wire w = wire_on(request, sizeof(request));

	t->dial = NULL;
	if (fd < 0) {
		fail(t, FAIL_PORT_LOST, "sandbox %s: %.150s", t->sandbox->id, text);
		return;
	}
	t->fd = fd;
	t->state = ASKING;
	loop_timer_set(t->loop, &t->deadline, ANSWER_LIMIT_MS);
	wire_put_u32(&w, 2);
	wire_put_u8(&w, AGENT_DIAL);
	wire_put_u8(&w, 0);
	wire_put_u16(&w, 0);
	wire_put_u16(&w, t->port);
	if (!queue(t, request, sizeof(request))) {
		fail(t, FAIL_NO_MEMORY, "the service has no memory for the request");
		return;
	}
	send_next(t);
	receive(t);
}

static bool has_room(const struct sandbox *s, struct failure *f)
{
	const struct ports_service *c = ports_of_service(s->service);
	const struct ports_tenant *t = ports_of_tenant(s->owner);

	if (ports_of(s)->n_tunnels < TUNNELS_MAX)
		return tenant_may_begin(s->service, "connections to ports", c->tunnels, t->tunnels,
					ALL_TUNNELS_MAX, f);
	failure_set(f, FAIL_TOO_MANY, 1,
		    "%d connections to ports of sandbox %s are open, which is the limit",
		    TUNNELS_MAX, s->id);
	return false;
}

/* Returns the number of connections of a visitor. */
static unsigned visits_of(const struct ports_service *c, uint64_t visitor)
{
	unsigned n = 0;

	list_each_of (t, struct tunnel, visit, &c->visits)
		n += t->visitor == visitor;
	return n;
}

static bool visitor_has_room(const struct tunnel *t, const struct sandbox *s, struct failure *f)
{
	const struct ports_service *c = ports_of_service(s->service);
	size_t own = ports_of_tenant(s->owner)->visits;

	if (!t->by_share)
		return true;
	if (visits_of(c, t->visitor) >= s->service->config.visitor_connections)
		failure_set(f, FAIL_TOO_MANY, 1,
			    "%u connections from your address to shared ports are open, which is "
			    "the limit",
			    s->service->config.visitor_connections);
	else if (ports_of(s)->visits >= VISITS_MAX)
		failure_set(
			f, FAIL_TOO_MANY, 1,
			"%d connections to shared ports of sandbox %s are open, which is the limit",
			VISITS_MAX, s->id);
	else if (!tenant_share(s->service, c->n_visits, own, ALL_VISITS_MAX))
		failure_set(f, FAIL_SERVICE_BUSY, 1,
			    "too many connections to shared ports of all sandboxes are open");
	else
		return true;
	return false;
}

static void begin(struct tunnel *t, struct sandbox *s)
{
	t->sandbox = s;
	list_add_tail(&ports_of(s)->tunnels, &t->link);
	if (t->by_share)
		list_add_tail(&ports_of_service(s->service)->visits, &t->visit);
	count(t, 1);
	ports_of_service(t->service)->connects++;
	sandbox_touch(s);
	t->touched_ms = loop_now_ms(t->loop);
	t->dial = dial_start(s->vm, DIAL_LIMIT_MS, false, on_dialed, t);
}

static const struct op_methods tunnel_ops = {
	.size = sizeof(struct tunnel_op),
	.passive = true,
	.put_away = put_away,
	.finished = finished,
	.abandon = abandon,
	.set_paused = set_paused,
};

struct op *service_port_connect(struct service *c, const char *tenant, const char *id,
				uint16_t port, const uint64_t *visitor,
				const struct port_sink *sink, void *arg)
{
	struct op *op = op_new(c, &tunnel_ops, arg);
	struct tunnel *t = malloc(sizeof(*t)); /* pages of the buffer are allocated at first use */
	struct sandbox *s;
	struct failure f;

	if (!t)
		abort();
	memset(t, 0, offsetof(struct tunnel, buf));
	t->op = op;
	t->service = c;
	t->loop = c->loop;
	t->sink = *sink;
	op->done_fn = sink->ended;
	t->port = port;
	t->by_share = visitor != NULL;
	t->visitor = visitor ? *visitor : 0;
	t->fd = -1;
	t->deadline = (struct loop_timer){.fn = on_deadline, .arg = t};
	t->pull = (struct loop_timer){.fn = pull, .arg = t};
	call_of(op)->tunnel = t;
	s = sandbox_find_reached(c, tenant, id, &f);
	if (!s || !has_room(s, &f) || !visitor_has_room(t, s, &f))
		return op_finish(op, &f);
	begin(t, s);
	return op;
}
