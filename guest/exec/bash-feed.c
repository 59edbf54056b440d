// SPDX-License-Identifier: Apache-2.0
#include "guest/exec/bash-feed.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/wire.h"
#include "guest/log-console.h"
#include "proto/agent.h"

/* Fits into a pipe (64 KiB), which is empty before each command. */
#define COMMAND_MAX (4 * PATH_MAX)

/* --- text in single quotes ------------------------------------------------------------------ */

/* Writes the text as one word of bash. */
static void put_word(FILE *f, const char *text, size_t len)
{
	fputc('\'', f);
	for (size_t i = 0; i < len; i++) {
		if (text[i] == '\'')
			fputs("'\\''", f);
		else
			fputc(text[i], f);
	}
	fputc('\'', f);
}

static void put_path(FILE *f, const struct bash_feed *b, const char *name)
{
	char path[PATH_MAX + 16];

	snprintf(path, sizeof(path), "%s/%s", b->dir, name);
	put_word(f, path, strlen(path));
}

/* --- the files ------------------------------------------------------------------------------ */

static int open_file(const struct bash_feed *b, const char *name)
{
	char path[PATH_MAX + 16];

	snprintf(path, sizeof(path), "%s/%s", b->dir, name);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
	return fd < 0 ? -errno : fd;
}

static void put_variable(FILE *f, struct wire *w)
{
	size_t name_len, value_len;
	const uint8_t *name = wire_get_str(w, &name_len, AGENT_PAYLOAD_MAX);
	const uint8_t *value = wire_get_str(w, &value_len, AGENT_PAYLOAD_MAX);

	if (!name || !value)
		return;
	fputc(' ', f);
	put_word(f, (const char *)name, name_len);
	fputc(' ', f);
	put_word(f, (const char *)value, value_len);
}

/* Writes the file that enters the folder and variables of the request, and runs the code. The
 * fields are checked already. */
static int write_setup(const struct bash_feed *b, struct wire *w)
{
	int fd = open_file(b, "setup");
	FILE *f = fd < 0 ? NULL : fdopen(fd, "w");
	size_t len;

	if (!f) {
		int bad = fd < 0 ? fd : -errno;
		if (fd >= 0)
			close(fd);
		return bad;
	}
	fputs("__ramet_enter ", f);
	const uint8_t *cwd = wire_get_str(w, &len, AGENT_PAYLOAD_MAX);
	put_word(f, (const char *)cwd, cwd ? len : 0);
	for (uint32_t left = wire_get_u32(w); left && !w->bad; left--)
		put_variable(f, w);
	fputs(" || return 1\n{ __ramet_started; } 2>/dev/null; . ", f);
	put_path(f, b, "bash");
	fputs(" 1000>&- 1004>&-\n", f);
	bool failed = ferror(f);
	return fclose(f) != 0 || failed ? -EIO : 0;
}

static int write_code(const struct bash_feed *b, const uint8_t *bytes, size_t len)
{
	while (len) {
		ssize_t n = write(b->code, bytes, len);
		if (n < 0)
			return -errno;
		bytes += n;
		len -= (size_t)n;
	}
	return 0;
}

/* --- commands ------------------------------------------------------------------------------- */

static void send_command(struct bash_feed *b, const char *text, size_t len)
{
	/* The pipe has room for it. If bash is gone, its pidfd reports that. */
	if (b->commands >= 0 && write(b->commands, text, len) < 0 && errno != EPIPE)
		log_console("give bash a command: %s", strerror(errno));
}

/* Starts the code, or reports why its files could not be written. */
static void run(struct bash_feed *b)
{
	char text[COMMAND_MAX];
	FILE *f = fmemopen(text, sizeof(text), "w");

	close_fd(&b->code);
	if (!f)
		return;
	if (b->error) {
		fprintf(f, "builtin printf 'ramet: write the code to a file: %%s\\n' '%s' >&2; ",
			strerror(-b->error));
		fputs("__ramet_begin; __ramet_end 126\n", f);
	} else {
		fputs("__ramet_begin; . ", f);
		put_path(f, b, "setup");
		fputs("; { __ramet_end \"$?\"; } 2>/dev/null || exit\n", f);
	}
	fflush(f);
	send_command(b, text, (size_t)ftell(f));
	fclose(f);
}

static void begin(struct bash_feed *b, const uint8_t *payload, size_t len)
{
	struct wire w = wire_from(payload, len);

	wire_get_u8(&w);
	wire_get_u8(&w);
	wire_get_u32(&w);
	b->missing = wire_get_u32(&w);
	wire_get_u64(&w);
	b->error = write_setup(b, &w);
	b->code = open_file(b, "bash");
	if (!b->error && b->code < 0)
		b->error = b->code;
	if (!b->missing)
		run(b);
}

static void add(struct bash_feed *b, const uint8_t *bytes, size_t len)
{
	static const char cut[] = "__ramet_begin; __ramet_end 1\n";

	if (!len) { /* the client left before the end */
		close_fd(&b->code);
		send_command(b, cut, sizeof(cut) - 1);
		return;
	}
	if (!b->error)
		b->error = write_code(b, bytes, len);
	b->missing -= (uint32_t)len;
	if (!b->missing)
		run(b);
}

static void reseed(struct bash_feed *b, bool users_too)
{
	char text[64];
	uint16_t seed = 0;

	if (users_too && getrandom(&seed, sizeof(seed), 0) == sizeof(seed))
		snprintf(text, sizeof(text), "__ramet_reseed %u\n", seed);
	else
		snprintf(text, sizeof(text), "__ramet_reseed ''\n");
	send_command(b, text, strlen(text));
}

void bash_feed_put(struct bash_feed *b, uint8_t type, const uint8_t *payload, size_t len)
{
	if (type == AGENT_EXEC)
		begin(b, payload, len);
	else if (type == AGENT_CODE)
		add(b, payload, len);
	else if (type == AGENT_RESEED)
		reseed(b, len && payload[0]);
}

/* --- start and end -------------------------------------------------------------------------- */

int bash_feed_open(struct bash_feed *b, const char *dir, struct err *e)
{
	b->commands = b->code = -1;
	if (mkdir(dir, 0755) < 0 && errno != EEXIST)
		return err_set(e, errno, "create the folder %s", dir);
	snprintf(b->dir, sizeof(b->dir), "%s", dir);
	return 0;
}

int bash_feed_start(struct bash_feed *b, const char *script, struct err *e)
{
	char text[COMMAND_MAX];
	int fds[2];

	bash_feed_stop(b);
	if (pipe2(fds, O_CLOEXEC) < 0)
		return err_set(e, errno, "start bash: pipe");
	b->commands = fds[1];
	FILE *f = fmemopen(text, sizeof(text), "w");
	if (!f || fcntl(fds[1], F_SETFL, O_NONBLOCK) < 0) {
		int bad = err_set(e, errno, "start bash: its first command");
		if (f)
			fclose(f);
		close(fds[0]);
		return bad;
	}
	fputs(". ", f);
	put_word(f, script, strlen(script));
	fputs(" && exec 1005<&- && __ramet_ready\n", f);
	fflush(f);
	send_command(b, text, (size_t)ftell(f));
	fclose(f);
	return fds[0];
}

void bash_feed_stop(struct bash_feed *b)
{
	close_fd(&b->commands);
	close_fd(&b->code);
}

static void remove_file(const struct bash_feed *b, const char *name)
{
	char path[PATH_MAX + 16];

	snprintf(path, sizeof(path), "%s/%s", b->dir, name);
	unlink(path);
}

void bash_feed_close(struct bash_feed *b)
{
	if (!b->dir[0])
		return;
	bash_feed_stop(b);
	remove_file(b, "setup");
	remove_file(b, "bash");
	rmdir(b->dir);
	b->dir[0] = '\0';
}
