// SPDX-License-Identifier: Apache-2.0
/* Starts ramet-notify as the warden does: notify_starter PROGRAM AUDIT_DIR OWN_DIR --NAME=VALUE…
 * Its standard input is the socket with spans. */
#include <fcntl.h>
#include <stdio.h>
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

	if (argc < 4 || config_load(&config, argc - 3, argv + 3, &e) < 0) {
		fprintf(stderr, "%s\n", argc < 4 ? "not enough arguments" : e.text);
		return 2;
	}
	int fds[] = {open(argv[2], O_RDONLY | O_DIRECTORY), open(argv[3], O_RDONLY | O_DIRECTORY),
		     memory(&config, sizeof(config)), memory(&zero, sizeof(zero)), STDIN_FILENO};
	for (size_t i = 0; i < ARRAY_LEN(fds); i++)
		fds[i] = fcntl(fds[i], F_DUPFD, 64);
	for (int i = 0; i < (int)ARRAY_LEN(fds); i++)
		dup2(fds[i], NOTIFY_AUDIT_FD + i);
	for (size_t i = 0; i < ARRAY_LEN(fds); i++)
		close(fds[i]);
	execl(argv[1], "ramet-notify", (char *)NULL);
	perror(argv[1]);
	return 2;
}
