// SPDX-License-Identifier: Apache-2.0
/* Starts ramet-notify as the warden does: notify_starter PROGRAM SOCKET_FD --NAME=VALUE…
 * Its standard input is the socket with spans. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fd.h"
#include "orchestrator/config/config.h"
#include "orchestrator/events/notify.h"

static int memory(const void *content, size_t len)
{
	int fd = memfd_create("test", 0);

	return fd < 0 || write(fd, content, len) != (ssize_t)len ? -1 : fd;
}

int main(int argc, char *argv[])
{
	const struct notify_counters zero = {0};
	struct config config;
	struct err e;

	if (argc < 3 || config_load(&config, argc - 2, argv + 2, &e) < 0) {
		fprintf(stderr, "%s\n", argc < 3 ? "not enough arguments" : e.text);
		return 2;
	}
	int fds[] = {atoi(argv[2]), memory(&config, sizeof(config)), memory(&zero, sizeof(zero)),
		     STDIN_FILENO};
	for (size_t i = 0; i < ARRAY_LEN(fds); i++)
		fds[i] = fcntl(fds[i], F_DUPFD, 64);
	for (int i = 0; i < (int)ARRAY_LEN(fds); i++)
		dup2(fds[i], NOTIFY_SOCKET_FD + i);
	for (size_t i = 0; i < ARRAY_LEN(fds); i++)
		close(fds[i]);
	execl(argv[1], "ramet-notify", (char *)NULL);
	perror(argv[1]);
	return 2;
}
