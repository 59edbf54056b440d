// SPDX-License-Identifier: Apache-2.0
#include "guest/exec/call.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "base/wire.h"
#include "guest/exec/driver.h"
#include "guest/exec/output.h"
#include "guest/session.h"

#define EXIT_TIMED_OUT 124
#define NOTE_MAX       (ERR_TEXT_MAX + 128)

enum call_state {
	CALL_NONE,
	CALL_CODE,  /* its code arrives and is passed to the driver at once; none is stored here */
	CALL_RUNS,  /* until the driver reports its exit code */
	CALL_DRAINS /* ended; its last output is not sent yet, or its host attached again */
};

/* The last measure taken against a call that exceeded its time limit. */
enum call_stop { STOP_NOTHING, STOP_SIGINT, STOP_KILL_CODE, STOP_KILL_DRIVER };

/* The call that runs or ran last. call_next zeroes it, up to its output. */
static struct call {
	enum call_state state;
	struct conn *client; /* NULL: it left; the call continues, see AGENT_ATTACH */
	uint64_t number;     /* chosen by the host */
	bool attachable;     /* false: its code never arrived completely */
	bool started;	     /* a signal now reaches the user's code */
	pid_t bash_group;    /* 0: the code runs in the driver */
	uint32_t code_left;
	uint32_t timeout_ms;
	int64_t began;	  /* by loop_now_ms */
	int64_t deadline; /* by loop_now_ms; 0: none */
	enum call_stop stop;
	int32_t exit_code;
	bool state_lost;
	bool noted;	     /* the note was added: the output is complete */
	bool cut_short;	     /* the interpreter died before it had all of the code */
	char note[NOTE_MAX]; /* the agent's own line on the call's stderr */
	size_t last_len;
	struct output output;
	/* The driver's last text, last_len bytes, then the note. */
	uint8_t last_text[AGENT_PAYLOAD_MAX + NOTE_MAX];
} call;

static struct list queue = {&queue, &queue}; /* connections whose call waits */
static unsigned grace;			     /* ms */
static void (*on_end)(void);

/* From this, the next call reports that the Python process was lost between calls. */
static struct {
	bool used;	 /* it holds state of earlier calls */
	struct err lost; /* how it was lost while no call ran; code 0: it was not */
} interpreter;

int call_init(unsigned grace_ms, void (*the_on_end)(void), struct err *e)
{
	grace = grace_ms;
	on_end = the_on_end;
	return output_open(&call.output, e);
}

struct driver_pipes call_pipes(void)
{
	return output_driver_pipes(&call.output);
}

bool call_is_active(void)
{
	return call.state != CALL_NONE;
}

void call_drop_backpressure(void)
{
	if (!call_is_active() || call.client)
		return;
	output_drop_backpressure(&call.output);
	call_on_sent(NULL);
}

static void drop_backpressure_if_awaited(void)
{
	if (!list_empty(&queue) || call.stop)
		call_drop_backpressure();
}

void call_queue(struct conn *c)
{
	list_add_tail(&queue, &c->turn);
	conn_become(c, CONN_QUEUED);
	call_drop_backpressure();
}

__attribute__((format(printf, 1, 2))) static void note(const char *format, ...)
{
	size_t len = strlen(call.note);
	va_list args;

	va_start(args, format);
	vsnprintf(call.note + len, sizeof(call.note) - len, format, args);
	va_end(args);
}

static void start_running(void)
{
	call.state = CALL_RUNS;
	interpreter.used = true;
	call.began = loop_now_ms();
	if (call.timeout_ms)
		call.deadline = call.began + call.timeout_ms;
	output_begin(&call.output);
	if (!call.client) {
		drop_backpressure_if_awaited();
		return;
	}
	conn_become(call.client, CONN_CALL);
	output_to(&call.output, call.client, 0);
}

/* Passes the frame in c->in to the driver; reads no other until the driver took it. */
static void pass_on(struct conn *c, uint8_t type, const uint8_t *payload, size_t len)
{
	/* The code starts once the driver has its last frame. */
	if (!call.code_left)
		output_drop_old(&call.output);
	if (type == AGENT_EXEC && call.code_left)
		driver_send_with_next(type, payload, len);
	else
		driver_send(type, payload, len);
	frame_reset(&c->in);
	if (driver_taken())
		call_on_driver_sent();
	else
		conn_hold(c, true);
}

void call_next(void)
{
	if (call_is_active() || list_empty(&queue))
		return;
	struct conn *c = container_of(queue.next, struct conn, turn);
	list_del(&c->turn);
	memset(&call, 0, offsetof(struct call, output));
	call.state = CALL_CODE;
	call.client = c;
	call.number = c->exec.call;
	call.attachable = true;
	call.code_left = c->exec.code_len;
	call.timeout_ms = c->exec.timeout_ms;
	if (interpreter.lost.code) {
		note("ramet: %s; its state is lost\n", interpreter.lost.text);
		call.state_lost = true;
		interpreter.lost.code = 0;
	}
	conn_become(c, CONN_CODE);
	pass_on(c, AGENT_EXEC, c->in.bytes + AGENT_HEADER_SIZE, c->in.have - AGENT_HEADER_SIZE);
}

/* The driver took a frame: continues with the next frame of code, or starts the run. */
void call_on_driver_sent(void)
{
	if (call.state != CALL_CODE)
		return;
	if (call.code_left && call.client) {
		conn_hold(call.client, false);
		return;
	}
	if (call.code_left) {
		/* The client left before all of the code arrived: an empty frame reports this to
		 * the driver. */
		call.code_left = 0;
		call.attachable = false;
		driver_send(AGENT_CODE, NULL, 0);
	}
	start_running();
}

int call_code(struct conn *c, const struct frame *f, struct err *e)
{
	if (f->type != AGENT_CODE || !f->len || f->len > call.code_left)
		return err_say(e, EPROTO,
			       "code of a call: a frame of type %u with %u bytes; %u bytes of code "
			       "are missing",
			       f->type, f->len, call.code_left);
	call.code_left -= f->len;
	pass_on(c, AGENT_CODE, f->payload, f->len);
	return 0;
}

void call_on_gone(struct conn *c)
{
	if (call.client != c)
		return;
	call.client = NULL;
	output_to(&call.output, NULL, 0);
	if (call.state == CALL_CODE && driver_taken())
		call_on_driver_sent();
	else if (call.state == CALL_DRAINS)
		call_on_sent(NULL);
	drop_backpressure_if_awaited();
}

int call_attach(struct conn *c, const struct attach_request *r, struct err *e)
{
	/* The host may have closed the old connection, though no event has reported this yet. */
	if (call.client && conn_is_broken(call.client))
		conn_drop(call.client);
	if (!call.attachable || call.number != r->call || call.code_left)
		return err_say(e, ENOENT, "the call is not the last one that was started here");
	if (call.client)
		return err_say(e, EBUSY, "the call still has a connection");
	/* Until the call's code has arrived, the ring holds the output of the previous call. */
	bool has_output = call.state == CALL_CODE ? !r->have : output_keeps(&call.output, r->have);
	if (!has_output)
		return err_say(e, ERANGE, "the call's output from byte %llu on is no longer kept",
			       (unsigned long long)r->have);
	if (call.state == CALL_NONE)
		call.state = CALL_DRAINS;
	call.client = c;
	call.cut_short = false;
	conn_become(c, CONN_CALL);
	if (call.state != CALL_CODE)
		output_to(&call.output, c, r->have);
	call_on_sent(c);
	return 0;
}

static void signal_code(int sig)
{
	if (call.bash_group)
		kill(-call.bash_group, sig);
	else
		driver_signal(sig);
}

static void look_for_start(void)
{
	if (call.state == CALL_RUNS && !call.started)
		call.started = driver_started(&call.bash_group);
}

void call_interrupt(void)
{
	if (call.state != CALL_CODE && call.state != CALL_RUNS)
		return;
	look_for_start();
	if (call.started)
		signal_code(SIGINT);
	else
		driver_await_start();
	call_drop_backpressure();
}

/* Sends the interrupt that was requested before the code had started. */
void call_on_started(pid_t bash_group)
{
	if (call.state != CALL_RUNS || call.started)
		return;
	call.started = true;
	call.bash_group = bash_group;
	signal_code(SIGINT);
}

static int64_t ran_ms(void)
{
	return call.state == CALL_RUNS ? loop_now_ms() - call.began : 0;
}

/* Returns the milliseconds until the deadline; -1: there is none. */
static int deadline_ms(void)
{
	if (call.state != CALL_RUNS || !call.deadline)
		return -1;
	int64_t left = call.deadline - loop_now_ms();
	return left < 0 ? 0 : left > 3600000 ? 3600000 : (int)left;
}

static void enforce_limit(void)
{
	if (deadline_ms() != 0)
		return;
	look_for_start();
	if (call.stop < STOP_KILL_DRIVER)
		call.stop++;
	/* After SIGKILL to bash, the driver reports the end of bash. It has ten times the grace for
	 * this, since the Python process is killed only if the driver hangs. */
	call.deadline += call.stop == STOP_KILL_CODE ? 10 * (int64_t)grace : grace;
	if (call.stop == STOP_SIGINT)
		call_interrupt();
	else if (call.stop == STOP_KILL_CODE)
		signal_code(SIGKILL);
	else
		driver_signal(SIGKILL);
	drop_backpressure_if_awaited();
}

int call_timeout_ms(void)
{
	return loop_sooner(deadline_ms(), output_timeout_ms(&call.output));
}

void call_on_time(void)
{
	enforce_limit();
	output_on_time(&call.output, ran_ms());
}

static void note_limit(bool killed)
{
	note("ramet: stopped at the time limit of %u.%03u s", call.timeout_ms / 1000,
	     call.timeout_ms % 1000);
	note(killed ? ", and had to be killed: the Python state is lost\n" : "\n");
}

static void send_exit(struct conn *c)
{
	uint8_t payload[8];
	struct wire w = wire_on(payload, sizeof(payload));

	wire_put_u32(&w, (uint32_t)call.exit_code);
	wire_put_u8(&w, call.state_lost);
	conn_send(c, AGENT_EXIT, payload, w.pos);
	conn_become(c, call.cut_short ? CONN_ENDING : CONN_IDLE);
}

/* The pipes are drained: the texts of the driver and of the agent are the call's last output. */
static void add_note(void)
{
	size_t len = strlen(call.note);

	if (call.noted)
		return;
	call.noted = true;
	memcpy(call.last_text + call.last_len, call.note, len);
	output_add(&call.output, call.last_text, call.last_len + len);
}

/* Advances the call to its end as far as its client takes output; without a client, as far as the
 * ring may be filled. */
void call_on_sent(struct conn *c)
{
	if (c != call.client)
		return;
	if (call.state == CALL_RUNS)
		output_resume(&call.output);
	if (call.state != CALL_DRAINS)
		return;
	output_resume(&call.output);
	/* If the client is lost while the rest is sent, the call ends: its state changes. */
	if (!output_drain(&call.output) || call.state != CALL_DRAINS)
		return;
	add_note();
	if (call.state != CALL_DRAINS || !output_is_sent(&call.output))
		return;
	struct conn *client = call.client;
	call.state = CALL_NONE;
	call.client = NULL;
	output_end(&call.output);
	if (client)
		send_exit(client);
	on_end();
}

static void end_call(int32_t code)
{
	call.exit_code = code;
	call.state = CALL_DRAINS;
	output_mark_end(&call.output);
	struct conn *client = call.client;
	if (client)
		conn_cork(client);
	call_on_sent(client);
	if (!client)
		return;
	conn_uncork(client);
	/* Continues if the output and the end did not fit into the buffer together, or if another
	 * client has attached. */
	if (call.state == CALL_DRAINS)
		call_on_sent(call.client);
}

void call_on_exit(int32_t code, const uint8_t *last, size_t last_len)
{
	if (call.state != CALL_RUNS)
		return;
	memcpy(call.last_text, last, last_len);
	call.last_len = last_len;
	/* Background processes of bash ignore SIGINT and would continue to use the CPU. */
	if (call.stop && call.bash_group)
		session_kill(call.bash_group);
	if (call.stop)
		note_limit(false);
	end_call(call.stop ? EXIT_TIMED_OUT : code);
}

void call_on_driver_gone(int status, const struct err *e)
{
	int32_t code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);

	if (call.state != CALL_CODE && call.state != CALL_RUNS) {
		if (interpreter.used)
			interpreter.lost = *e;
		interpreter.used = false;
		return;
	}
	interpreter.used = false;
	call.state_lost = true;
	look_for_start();
	/* The call is over, and nobody else would end its bash. */
	if (call.bash_group)
		session_kill(call.bash_group);
	if (call.stop)
		note_limit(true);
	else
		note("ramet: %s; its state is lost\n", e->text);
	/* The rest of the call's code may still arrive, but is not read. */
	call.cut_short = call.state == CALL_CODE;
	end_call(call.stop ? EXIT_TIMED_OUT : code);
}

void call_refuse_all(const struct err *e)
{
	while (!list_empty(&queue)) {
		struct conn *c = container_of(queue.next, struct conn, turn);
		list_del(&c->turn);
		conn_send_error(c, e);
		/* The call's code was not read, so the connection cannot carry another request. */
		conn_become(c, CONN_ENDING);
	}
}
