// SPDX-License-Identifier: Apache-2.0
/* Splits the input at the first zero byte into two files of a log. Reading them must end, and the
 * numbers of lines must grow. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "orchestrator/events/tail.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int folder(void)
{
	static int fd = -1;
	char path[] = "/tmp/ramet-fuzz-tail-XXXXXX";

	if (fd < 0 && mkdtemp(path))
		fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd;
}

static void put(const char *name, const uint8_t *data, size_t size)
{
	int fd = openat(folder(), name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (fd < 0 || write(fd, data, size) != (ssize_t)size)
		abort();
	close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *zero = size ? memchr(data, 0, size) : NULL;
	size_t first = zero ? (size_t)(zero - data) : size;
	struct audit_line head;
	uint64_t before = 0;
	const char *line;
	struct tail t;
	size_t len;

	put(AUDIT_FILE ".1", data, first);
	put(AUDIT_FILE, data + first, size - first);
	tail_init(&t, folder(), size % 3);
	while (tail_next(&t, &head, &line, &len)) {
		if (head.n < before || len > sizeof(t.buf))
			abort();
		before = head.n + 1;
	}
	tail_fini(&t);
	return 0;
}
