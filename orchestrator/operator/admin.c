// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/operator/admin.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/elements.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/message-fds.h"
#include "orchestrator/operator/canary.h"

#define CLIENTS_MAX 32
#define TIMEOUT_MS  10000 /* limit for receiving a request, and for sending the answer */

static const struct command *const tables[] = {key_commands, audit_commands, host_commands, NULL};

struct admin {
	struct loop *loop;
	struct command_env env;
	int fd;
	struct loop_op *poll; /* NULL while there are too many clients */
	struct list clients;
	unsigned n_clients;
	bool closing;
};

/* A client always waits for one of these: an operation in flight, a call of the service, or a timer
 * for the next part of its answer. The end of each continues with the client or frees it. */
struct client {
	struct admin *admin;
	struct list link;
	int fd;
	struct loop_op *op;
	struct op *pending;
	struct canary *canary;
	struct loop_timer limit; /* not set while the client waits for the service */
	size_t len;
	char request[COMMAND_BYTES_MAX + 1]; /* one more byte, to detect that it is too long */
	char *answer;
	size_t answer_len;
	FILE *out; /* writes to `answer` while parts of it follow */
	struct command_rest rest;
	struct loop_timer turn; /* starts the next part */
	int fd_along;		/* descriptor to send with the answer; -1: none */
	struct msghdr msg;
	struct iovec iov;
	MESSAGE_FDS_ROOM(control, 1);
};

static void watch(struct admin *a);

/* Frees `a` when it is closing and nothing is in flight any more. */
static void check_closed(struct admin *a)
{
	if (!a->closing || a->poll || a->n_clients)
		return;
	close_fd(&a->fd);
	free(a);
}

static void client_free(struct client *c)
{
	struct admin *a = c->admin;

	if (c->pending)
		op_abandon(c->pending);
	canary_free(c->canary);
	loop_timer_clear(a->loop, &c->limit);
	loop_timer_clear(a->loop, &c->turn);
	list_del(&c->link);
	if (c->out)
		fclose(c->out);
	close_fd(&c->fd);
	close_fd(&c->fd_along);
	free(c->answer);
	free(c);
	a->n_clients--;
	watch(a);
	check_closed(a);
}

/* --- the answer ----------------------------------------------------------------------------- */

static void on_sent(void *arg, int result)
{
	client_free(arg);
}

static void send_answer(struct client *c, enum command_status status)
{
	c->answer[0] = (char)status;
	c->op = loop_send(c->admin->loop, c->fd, c->answer, c->answer_len, on_sent, c);
	if (!c->op)
		client_free(c);
}

/* Appends to the answer; does nothing when out of memory. */
static void add_text(struct client *c, const char *text)
{
	size_t len = strlen(text);
	char *longer = realloc(c->answer, c->answer_len + len);

	if (!longer)
		return;
	memcpy(longer + c->answer_len, text, len);
	c->answer = longer;
	c->answer_len += len;
}

/* Answers a command that waited for the service: with the failure's text, or without a failure with
 * `text`. */
static void end_wait(struct client *c, const char *text, const struct failure *f)
{
	c->pending = NULL;
	loop_timer_set(c->admin->loop, &c->limit, TIMEOUT_MS);
	add_text(c, f ? f->text : text);
	if (f)
		add_text(c, "\n");
	send_answer(c, f ? COMMAND_FAILED : COMMAND_DONE);
}

static void on_synced(void *arg, const struct failure *f)
{
	end_wait(arg, "", f);
}

/* Sends the status and the descriptor of the copy as one message, without a text. */
static void send_copy(struct client *c)
{
	c->answer[0] = COMMAND_DONE;
	c->iov = (struct iovec){c->answer, 1};
	c->msg = (struct msghdr){.msg_iov = &c->iov, .msg_iovlen = 1};
	message_put_fds(&c->msg, c->control, &c->fd_along, 1);
	c->op = loop_sendmsg(c->admin->loop, c->fd, &c->msg, on_sent, c);
	if (!c->op)
		client_free(c);
}

static void on_backup(void *arg, int fd, const struct failure *f)
{
	struct client *c = arg;

	c->fd_along = fd;
	if (f) {
		end_wait(c, "", f);
		return;
	}
	c->pending = NULL;
	loop_timer_set(c->admin->loop, &c->limit, TIMEOUT_MS);
	send_copy(c);
}

static void on_report(void *arg, const char *text, const struct failure *f)
{
	end_wait(arg, text, f);
}

static void on_canary(void *arg, const char *text, bool well)
{
	struct client *c = arg;

	loop_timer_set(c->admin->loop, &c->limit, TIMEOUT_MS);
	add_text(c, text);
	add_text(c, "\n");
	send_answer(c, well ? COMMAND_DONE : COMMAND_FAILED);
}

/* Parses the request; on failure, writes the reason to `out` and returns false. */
static bool parse(struct client *c, struct arguments *args, FILE *out)
{
	struct err e;

	if (args && arguments_parse(args, c->request, c->len, &e) == 0)
		return true;
	fprintf(out, "%s\n", args ? e.text : "the service is out of memory");
	return false;
}

static void wait_for(struct client *c, enum command_wait wait, enum command_status status,
		     const struct arguments *args)
{
	const struct command_env *env = &c->admin->env;

	if (wait == COMMAND_AT_ONCE || (wait == COMMAND_SYNC && !env->sync)) {
		send_answer(c, status);
		return;
	}
	loop_timer_clear(c->admin->loop, &c->limit);
	if (wait == COMMAND_SYNC)
		c->pending = env->sync(env->service, on_synced, c);
	else if (wait == COMMAND_BACKUP)
		c->pending = env->backup(env->service, on_backup, c);
	else if (wait == COMMAND_INSPECT)
		c->pending = env->inspect(env->service, args->argv[args->argc - 1], on_report, c);
	else if (wait == COMMAND_LOADS)
		c->pending = env->loads(env->peers, env->service, on_report, c);
	else
		c->canary = canary_start(env, on_canary, c);
}

static struct command_env env_of(struct client *c)
{
	struct command_env env = c->admin->env;

	env.rest = &c->rest;
	return env;
}

static void add_parts(void *arg)
{
	struct client *c = arg;
	const struct command_env env = env_of(c);

	if (c->rest.more(&env, &c->rest, c->out)) {
		loop_timer_set(c->admin->loop, &c->turn, 0);
		return;
	}
	bool whole = fclose(c->out) == 0;
	c->out = NULL;
	loop_timer_set(c->admin->loop, &c->limit, TIMEOUT_MS);
	if (whole)
		send_answer(c, COMMAND_DONE);
	else
		client_free(c);
}

/* Writes a long answer in parts, with a turn of the loop between them. */
static void begin_parts(struct client *c, FILE *out)
{
	loop_timer_clear(c->admin->loop, &c->limit);
	c->out = out;
	c->turn = (struct loop_timer){.fn = add_parts, .arg = c};
	add_parts(c);
}

static void answer(struct client *c)
{
	scoped_free struct arguments *args = malloc(sizeof(*args));
	const struct command_env env = env_of(c);
	FILE *out = open_memstream(&c->answer, &c->answer_len);
	bool whole = out && fputc(0, out) != EOF; /* reserves the byte for the status */
	enum command_wait wait = COMMAND_AT_ONCE;
	enum command_status status = COMMAND_FAILED;

	if (whole && parse(c, args, out))
		status = command_run(tables, &env, args, out, &wait);
	explicit_bzero(c->request, sizeof(c->request));
	if (status == COMMAND_DONE && c->rest.more) {
		begin_parts(c, out);
		return;
	}
	if (out && fclose(out) != 0)
		whole = false;
	if (whole)
		wait_for(c, wait, status, args);
	else
		client_free(c);
}

/* --- the request ---------------------------------------------------------------------------- */

static void receive(struct client *c);

static void on_received(void *arg, int result)
{
	struct client *c = arg;

	c->op = NULL;
	if (result < 0 || c->admin->closing) {
		client_free(c);
		return;
	}
	c->len += (size_t)result;
	if (result == 0 || c->len == sizeof(c->request))
		answer(c);
	else
		receive(c);
}

static void receive(struct client *c)
{
	c->op = loop_recv(c->admin->loop, c->fd, c->request + c->len, sizeof(c->request) - c->len,
			  on_received, c);
	if (!c->op)
		client_free(c);
}

static void on_limit(void *arg)
{
	struct client *c = arg;

	loop_cancel(c->admin->loop, c->op);
}

/* --- clients -------------------------------------------------------------------------------- */

/* Returns whether the peer is root, or has the service's own uid. The mode of the socket already
 * excludes others. */
static bool may_ask(int fd)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0)
		return false;
	if (peer.uid == 0 || peer.uid == geteuid())
		return true;
	log_warn("refused a command from uid %u: only root may send commands", peer.uid);
	return false;
}

static void client_new(struct admin *a, int accepted)
{
	scoped_fd int fd = accepted;
	struct client *c = may_ask(fd) ? calloc(1, sizeof(*c)) : NULL;

	if (!c)
		return;
	c->admin = a;
	c->fd = take_fd(&fd);
	c->fd_along = -1;
	loop_timer_start(a->loop, &c->limit, on_limit, c, TIMEOUT_MS);
	list_add_tail(&a->clients, &c->link);
	a->n_clients++;
	receive(c);
}

static void on_connect(void *arg, int result)
{
	struct admin *a = arg;

	a->poll = NULL;
	if (a->closing || result < 0) {
		check_closed(a);
		return;
	}
	int fd = accept4(a->fd, NULL, NULL, SOCK_CLOEXEC);
	if (fd >= 0)
		client_new(a, fd);
	watch(a);
}

static void watch(struct admin *a)
{
	if (!a->closing && !a->poll && a->n_clients < CLIENTS_MAX)
		a->poll = loop_poll(a->loop, a->fd, POLLIN, on_connect, a);
}

/* --- life ----------------------------------------------------------------------------------- */

int admin_new(struct admin **out, struct loop *loop, int fd, const struct command_env *env,
	      struct err *e)
{
	struct admin *a = calloc(1, sizeof(*a));

	if (!a)
		return err_set(e, ENOMEM, "allocate the operators' socket");
	a->loop = loop;
	a->env = *env;
	a->fd = fd;
	watch(a);
	*out = a;
	return 0;
}

void admin_free(struct admin *a)
{
	if (!a)
		return;
	a->closing = true;
	a->n_clients++; /* so that the end of the last client does not free `a` in this loop */
	if (a->poll)
		loop_cancel(a->loop, a->poll);
	list_each_of_safe (c, struct client, link, &a->clients) {
		if (c->op)
			loop_cancel(a->loop, c->op);
		else
			client_free(c);
	}
	a->n_clients--;
	check_closed(a);
}
