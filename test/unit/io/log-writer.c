// SPDX-License-Identifier: Apache-2.0
/* The thread that writes the log: a caller that logs never waits for the reader of the log. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "orchestrator/io/log-writer.h"

static int log_pipe[2]; /* receives the log of this process */

static int start(void **state)
{
	struct err e;

	return pipe(log_pipe) == 0 ? log_writer_start(log_pipe[1], &e) : -1;
}

static FILE *open_reader(void)
{
	FILE *f = fdopen(dup(log_pipe[0]), "r");

	assert_non_null(f);
	return f;
}

/* Logs in a child process, which aborts immediately afterwards. */
static void lines_before_an_abort_are_written(void **state)
{
	const struct rlimit no_service = {0, 0};
	int fds[2], status, lines = 0;
	char line[LOG_LINE_MAX];
	struct err e;

	assert_int_equal(pipe(fds), 0);
	pid_t child = fork();
	if (child == 0) {
		setrlimit(RLIMIT_CORE, &no_service);
		if (log_writer_start(fds[1], &e) < 0)
			_exit(1);
		for (int i = 0; i < 100; i++)
			log_error("line %d", i);
		abort();
	}
	close(fds[1]);
	FILE *f = fdopen(fds[0], "r");
	while (fgets(line, sizeof(line), f))
		lines++;
	fclose(f);
	assert_int_equal(lines, 100);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

/* Nobody reads: a call that waited for the pipe would never return. */
static void hanging_reader_does_not_block_logging(void **state)
{
	const int lines = 10000;
	char line[LOG_LINE_MAX];
	int next = 0, number;

	for (int i = 0; i < lines; i++)
		log_error("%d %80s", i, "x");
	assert_in_range(log_writer_dropped(), 1, lines - 1);
	FILE *f = open_reader();
	/* Each line is complete and in order; missing lines are counted in their place. */
	while (next < lines && fgets(line, sizeof(line), f)) {
		assert_int_equal(sscanf(strstr(line, ": ") + 2, "%d", &number), 1);
		if (strstr(line, "lines of the log are missing here"))
			next += number;
		else
			assert_int_equal(number, next++);
	}
	assert_int_equal(next, lines);
	fclose(f);
}

static void *log_many(void *arg)
{
	for (int i = 0; i < 200; i++)
		log_error("%s", (const char *)arg);
	return NULL;
}

static void lines_of_several_threads_are_not_mixed(void **state)
{
	char texts[4][100], line[LOG_LINE_MAX];
	unsigned seen[4] = {0};
	pthread_t threads[4];
	FILE *f = open_reader();

	for (int i = 0; i < 4; i++) {
		memset(texts[i], 'a' + i, sizeof(texts[i]) - 1);
		texts[i][sizeof(texts[i]) - 1] = 0;
		assert_int_equal(pthread_create(&threads[i], NULL, log_many, texts[i]), 0);
	}
	for (int n = 0; n < 800; n++) {
		assert_non_null(fgets(line, sizeof(line), f));
		const char *text = strstr(line, ": ") + 2;
		int of = text[0] - 'a';
		assert_in_range(of, 0, 3);
		assert_int_equal(strncmp(text, texts[of], 99), 0);
		seen[of]++;
	}
	for (int i = 0; i < 4; i++) {
		assert_int_equal(seen[i], 200);
		pthread_join(threads[i], NULL);
	}
	fclose(f);
}

static void flush_waits_until_all_is_written(void **state)
{
	struct pollfd readable = {.fd = log_pipe[0], .events = POLLIN};
	char text[4096];

	log_error("the last");
	log_writer_flush();
	assert_int_equal(poll(&readable, 1, 0), 1);
	assert_true(read(log_pipe[0], text, sizeof(text)) > 0);
}

int main(void)
{
	const struct CMUnitTest before[] = {
		cmocka_unit_test(lines_before_an_abort_are_written),
	};
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hanging_reader_does_not_block_logging),
		cmocka_unit_test(lines_of_several_threads_are_not_mixed),
		cmocka_unit_test(flush_waits_until_all_is_written),
	};

	int failed = cmocka_run_group_tests(before, NULL, NULL);
	return failed + cmocka_run_group_tests(tests, start, NULL);
}
