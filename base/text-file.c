// SPDX-License-Identifier: Apache-2.0
#include "base/text-file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/fd.h"

int text_file_read(int dir, const char *path, char *out, size_t size)
{
	scoped_fd int fd = openat(dir, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	ssize_t len = fd < 0 ? -1 : read(fd, out, size - 1);

	out[len < 0 ? 0 : len] = '\0';
	return len < 0 ? -errno : (int)len;
}

int text_file_write(int dir, const char *path, const char *text)
{
	scoped_fd int fd = openat(dir, path, O_WRONLY | O_CLOEXEC);

	return fd < 0 || write(fd, text, strlen(text)) < 0 ? -errno : 0;
}

char *text_print(void (*print)(FILE *f, const void *arg), const void *arg)
{
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);

	if (!f)
		return NULL;
	print(f, arg);
	if (fclose(f) == 0)
		return text;
	free(text);
	return NULL;
}
