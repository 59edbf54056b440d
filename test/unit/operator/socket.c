// SPDX-License-Identifier: Apache-2.0
/* The admin socket: complete and truncated requests, too many clients, and a stop while clients are
 * connected. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/fd.h"
#include "base/message-fds.h"
#include "orchestrator/operator/admin.h"
#include "orchestrator/observe/reports.h"
#include "orchestrator/service/service.h"
#include "orchestrator/store/keys.h"

struct world {
	struct config config;
	struct loop *loop;
	struct store *store;
	struct keys *keys;
	struct admin *admin;
	struct sockaddr_un at;
	struct loop_timer turn;
	/* callback for the command that waits for the disk */
	service_done_fn *synced;
	void *synced_arg;
	/* callback for the command that waits for a copy */
	service_backup_fn *copied;
	void *copied_arg;
	/* callback for the command that waits for a report */
	service_inspect_fn *inspected;
	void *inspected_arg;
	char inspected_name[64];
	struct loop_timer report;
	/* the canary: the step that comes next, and what happened */
	struct loop_timer step;
	service_create_fn *created;
	service_fork_fn *forked;
	service_done_fn *removed;
	void *canary_arg;
	bool fork_fails;
	char steps[256];
};

/* `service` points to the test's world. */
static struct op *on_sync(struct service *service, service_done_fn *fn, void *arg)
{
	struct world *w = (struct world *)service;

	assert_null(w->synced);
	w->synced = fn;
	w->synced_arg = arg;
	return (struct op *)w;
}

static struct op *on_backup(struct service *service, service_backup_fn *fn, void *arg)
{
	struct world *w = (struct world *)service;

	w->copied = fn;
	w->copied_arg = arg;
	return (struct op *)w;
}

/* Reports on sandbox sbx_1, in the loop's next turn; other names are unknown. */
static void send_report(void *arg)
{
	struct world *w = arg;
	const struct failure f = {.code = FAIL_NOT_FOUND, .text = "there is no such sandbox"};
	bool there = !strcmp(w->inspected_name, "sbx_1");

	w->inspected(w->inspected_arg, there ? "first line\nlast line\n" : NULL, there ? NULL : &f);
}

static struct op *on_inspect(struct service *service, const char *name, service_inspect_fn *fn,
			     void *arg)
{
	struct world *w = (struct world *)service;

	w->inspected = fn;
	w->inspected_arg = arg;
	snprintf(w->inspected_name, sizeof(w->inspected_name), "%s", name);
	w->report = (struct loop_timer){.fn = send_report, .arg = w};
	loop_timer_set(w->loop, &w->report, 0);
	return (struct op *)w;
}

/* --- the canary's sandboxes ------------------------------------------------------------------- */

static struct op *take_step(struct world *w, void (*fn)(void *arg), void *arg, const char *what,
			    const char *id)
{
	size_t len = strlen(w->steps);

	snprintf(w->steps + len, sizeof(w->steps) - len, "%s %s\n", what, id);
	w->canary_arg = arg;
	w->step = (struct loop_timer){.fn = fn, .arg = w};
	loop_timer_set(w->loop, &w->step, 0);
	return (struct op *)w;
}

static void send_created(void *arg)
{
	struct world *w = arg;
	const struct sandbox_view view = {.id = "sbx_parent"};

	w->created(w->canary_arg, &view, NULL);
}

static void send_forked(void *arg)
{
	struct world *w = arg;
	const char *const ids[] = {"sbx_child"};
	const struct service_forked forked = {.ids = ids, .n = 1};
	const struct failure f = {.code = FAIL_NO_CAPACITY, .text = "the disk is full"};

	w->forked(w->canary_arg, w->fork_fails ? NULL : &forked, w->fork_fails ? &f : NULL);
}

static void send_removed(void *arg)
{
	struct world *w = arg;

	w->removed(w->canary_arg, NULL);
}

static struct op *on_create(struct service *service, const char *tenant,
			    const struct sandbox_spec *spec, service_create_fn *fn, void *arg)
{
	struct world *w = (struct world *)service;

	assert_true(spec->config.timeout_s > 0 && spec->config.timeout_s <= 600);
	w->created = fn;
	return take_step(w, send_created, arg, "create", tenant);
}

static struct op *on_fork(struct service *service, const char *tenant, const char *id,
			  const struct fork_spec *spec, service_fork_fn *fn, void *arg)
{
	struct world *w = (struct world *)service;

	assert_int_equal(spec->n, 1);
	w->forked = fn;
	return take_step(w, send_forked, arg, "fork", id);
}

static struct op *on_remove(struct service *service, const char *tenant, const char *id,
			    service_done_fn *fn, void *arg)
{
	struct world *w = (struct world *)service;

	w->removed = fn;
	return take_step(w, send_removed, arg, "remove", id);
}

/* ------------------------------------------------------------------------------------------------
 */

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	struct err e;

	config_defaults(&w->config);
	assert_int_equal(loop_new(&w->loop, &e), 0);
	assert_int_equal(store_open(&w->store, ":memory:", &e), 0);
	assert_int_equal(keys_new(&w->keys, w->store, &e), 0);
	w->at.sun_family = AF_UNIX;
	snprintf(w->at.sun_path, sizeof(w->at.sun_path), "/tmp/ramet-admin-%d.sock", getpid());
	unlink(w->at.sun_path);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&w->at, sizeof(w->at)), 0);
	assert_int_equal(listen(fd, 64), 0);
	const struct command_env env = {.config = &w->config,
					.keys = w->keys,
					.service = (struct service *)w,
					.sync = on_sync,
					.backup = on_backup,
					.inspect = on_inspect,
					.create = on_create,
					.fork = on_fork,
					.remove = on_remove};
	assert_int_equal(admin_new(&w->admin, w->loop, fd, &env, &e), 0);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	admin_free(w->admin);
	loop_free(w->loop);
	keys_free(w->keys);
	store_close(w->store);
	unlink(w->at.sun_path);
	free(w);
	return 0;
}

static void stop(void *arg)
{
	loop_stop(((struct world *)arg)->loop);
}

static int client(struct world *w)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(connect(fd, (struct sockaddr *)&w->at, sizeof(w->at)), 0);
	return fd;
}

static void turn(struct world *w)
{
	w->turn = (struct loop_timer){.fn = stop, .arg = w};
	loop_timer_set(w->loop, &w->turn, 1);
	assert_int_equal(loop_run(w->loop), 0);
}

static void disk_answers(struct world *w, const struct failure *f)
{
	service_done_fn *fn = w->synced;

	assert_non_null(fn);
	w->synced = NULL;
	fn(w->synced_arg, f);
}

/* Runs the loop until the answer is complete; *status is its first byte. */
static char *answer_of(struct world *w, int fd, int *status)
{
	static char text[65536];
	size_t len = 0;

	for (;;) {
		ssize_t n = recv(fd, text + len, sizeof(text) - 1 - len, MSG_DONTWAIT);

		if (n == 0 || (n < 0 && errno == ECONNRESET))
			break;
		if (n > 0) {
			len += (size_t)n;
			continue;
		}
		if (w->synced)
			disk_answers(w, NULL);
		turn(w);
	}
	text[len] = '\0';
	*status = len ? (unsigned char)text[0] : -1;
	return len ? text + 1 : text;
}

static char *ask(struct world *w, const void *request, size_t len, int *status)
{
	scoped_fd int fd = client(w);

	assert_int_equal(send(fd, request, len, MSG_NOSIGNAL), len);
	shutdown(fd, SHUT_WR);
	return answer_of(w, fd, status);
}

static void command_is_answered(void **state)
{
	static const char create[] = "key\0create\0--tier\0pro\0--name\0x";
	struct world *w = *state;
	int status;

	char *said = ask(w, create, sizeof(create), &status);
	assert_int_equal(status, COMMAND_DONE);
	assert_memory_equal(said, "rmt_", 4);
	said = ask(w, "key\0list", 9, &status);
	assert_int_equal(status, COMMAND_DONE);
	assert_non_null(strstr(said, "pro"));
}

static int begin(struct world *w, const char *words, size_t len)
{
	int fd = client(w);

	assert_int_equal(send(fd, words, len, MSG_NOSIGNAL), len);
	shutdown(fd, SHUT_WR);
	for (int i = 0; i < 5000 && !w->synced; i++)
		turn(w);
	assert_non_null(w->synced);
	return fd;
}

static bool has_answer(struct world *w, int fd)
{
	char byte;

	for (int i = 0; i < 20; i++)
		turn(w);
	return recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 1;
}

static void revocation_is_answered_once_it_is_on_the_disk(void **state)
{
	const struct failure broken = {.code = FAIL_CATALOGUE, .text = "the disk is gone"};
	char text[KEY_TEXT_LEN + 1], words[64] = "key\0revoke";
	const struct key *key;
	struct world *w = *state;
	struct err e;
	int status;

	assert_int_equal(keys_create(w->keys, "x", "pro", NULL, text, &key, &e), 0);
	strcpy(words + 11, key->id);
	size_t len = 11 + strlen(key->id) + 1;
	scoped_fd int fd = begin(w, words, len);
	assert_int_equal(keys_check(w->keys, text, KEY_TEXT_LEN, &key), KEY_REVOKED);
	assert_false(has_answer(w, fd));
	disk_answers(w, &broken);
	char *said = answer_of(w, fd, &status);
	assert_int_equal(status, COMMAND_FAILED);
	assert_non_null(strstr(said, " is revoked\nthe disk is gone\n"));
	/* The operator tries again. */
	scoped_fd int again = begin(w, words, len);
	assert_false(has_answer(w, again));
	disk_answers(w, NULL);
	said = answer_of(w, again, &status);
	assert_int_equal(status, COMMAND_DONE);
	assert_non_null(strstr(said, " is revoked\n"));
}

static int ask_for_backup(struct world *w)
{
	int fd = client(w);

	w->copied = NULL;
	assert_int_equal(send(fd, COMMAND_COPY, sizeof(COMMAND_COPY), MSG_NOSIGNAL),
			 sizeof(COMMAND_COPY));
	shutdown(fd, SHUT_WR);
	for (int i = 0; i < 5000 && !w->copied; i++)
		turn(w);
	assert_non_null(w->copied);
	return fd;
}

static void backup_is_sent_as_a_descriptor(void **state)
{
	const struct failure full = {.code = FAIL_BACKUP_FAILED, .text = "the disk is full"};
	MESSAGE_FDS_ROOM(control, 1);
	struct world *w = *state;
	char bytes[8], status;
	struct iovec iov = {&status, 1};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	int ends[2], copy, code;

	message_want_fds(&msg, control, 1);
	scoped_fd int fd = ask_for_backup(w);
	assert_false(has_answer(w, fd));
	assert_int_equal(pipe(ends), 0);
	assert_int_equal(write(ends[1], "copy", 4), 4);
	close(ends[1]);
	w->copied(w->copied_arg, ends[0], NULL);
	assert_true(has_answer(w, fd));
	assert_int_equal(recvmsg(fd, &msg, MSG_CMSG_CLOEXEC), 1);
	assert_int_equal(status, COMMAND_DONE);
	assert_int_equal(message_take_fds(&msg, &copy), 1);
	assert_int_equal(read(copy, bytes, sizeof(bytes)), 4);
	close(copy);
	scoped_fd int again = ask_for_backup(w);
	w->copied(w->copied_arg, -1, &full);
	assert_string_equal(answer_of(w, again, &code), "the disk is full\n");
	assert_int_equal(code, COMMAND_FAILED);
	assert_non_null(strstr(ask(w, "backup", 7, &code), "usage: rametctl backup DIR"));
}

static void report_is_sent_when_it_is_ready(void **state)
{
	struct world *w = *state;
	int code;

	assert_string_equal(ask(w, "inspect\0sbx_1", 14, &code), "first line\nlast line\n");
	assert_int_equal(code, COMMAND_DONE);
	assert_string_equal(w->inspected_name, "sbx_1");
	assert_string_equal(ask(w, "inspect\0sbx_2", 14, &code), "there is no such sandbox\n");
	assert_int_equal(code, COMMAND_FAILED);
	assert_non_null(strstr(ask(w, "inspect", 8, &code), "usage: rametctl inspect ID"));
	assert_int_equal(code, COMMAND_USAGE);
}

static void canary_is_forked_and_removed(void **state)
{
	struct world *w = *state;
	int code;

	const char *said = ask(w, "canary", 7, &code);
	assert_int_equal(code, COMMAND_DONE);
	assert_non_null(strstr(said, "a sandbox was made in "));
	assert_string_equal(w->steps, "create local\nfork sbx_parent\nremove sbx_child\n"
				      "remove sbx_parent\n");
}

static void canary_whose_fork_fails_is_removed(void **state)
{
	struct world *w = *state;
	int code;

	w->fork_fails = true;
	assert_string_equal(ask(w, "canary", 7, &code), "fork the sandbox: the disk is full\n");
	assert_int_equal(code, COMMAND_FAILED);
	assert_string_equal(w->steps, "create local\nfork sbx_parent\nremove sbx_parent\n");
}

static void invalid_requests_are_answered(void **state)
{
	static char large[3 * COMMAND_BYTES_MAX];
	struct world *w = *state;
	int status;

	assert_non_null(strstr(ask(w, "key\0li", 6, &status), "truncated"));
	assert_int_equal(status, COMMAND_FAILED);
	assert_non_null(strstr(ask(w, "", 0, &status), "not 0"));
	assert_non_null(strstr(ask(w, large, COMMAND_BYTES_MAX + 1, &status), "not 4097"));
	ask(w, "nothing", 8, &status);
	assert_int_equal(status, COMMAND_USAGE);
	/* Whatever the answer to a request that is much too long, the next request is served. */
	memset(large, 'x', sizeof(large));
	ask(w, large, sizeof(large), &status);
	ask(w, "key\0list", 9, &status);
	assert_int_equal(status, COMMAND_DONE);
}

/* Connects more clients than are served at a time, all silent. When some leave, the rest are
 * served. */
static void excess_clients_wait(void **state)
{
	struct world *w = *state;
	int fds[60], status;

	for (int i = 0; i < 60; i++)
		fds[i] = client(w);
	for (int i = 0; i < 30; i++)
		close(fds[i]);
	for (int i = 59; i >= 30; i--) {
		assert_int_equal(send(fds[i], "key\0list", 9, MSG_NOSIGNAL), 9);
		shutdown(fds[i], SHUT_WR);
	}
	for (int i = 30; i < 60; i++) {
		answer_of(w, fds[i], &status);
		assert_int_equal(status, COMMAND_DONE);
		close(fds[i]);
	}
}

/* The teardown stops the socket while clients are connected. */
static void stop_ends_connected_clients(void **state)
{
	struct world *w = *state;
	int status;

	for (int i = 0; i < 5; i++)
		assert_int_equal(send(client(w), "ke", 2, MSG_NOSIGNAL), 2);
	ask(w, "key\0list", 9, &status); /* the other clients were accepted before this one */
	assert_int_equal(status, COMMAND_DONE);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(command_is_answered),
		T(revocation_is_answered_once_it_is_on_the_disk),
		T(backup_is_sent_as_a_descriptor),
		T(report_is_sent_when_it_is_ready),
		T(canary_is_forked_and_removed),
		T(canary_whose_fork_fails_is_removed),
		T(invalid_requests_are_answered),
		T(excess_clients_wait),
		T(stop_ends_connected_clients),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
