// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/events/cursor.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/fd.h"

#define NAME	 "cursor"
#define NAME_NEW "cursor.new"

size_t cursor_print(char out[static CURSOR_TEXT_MAX], uint64_t n)
{
	size_t len = (size_t)snprintf(out, CURSOR_TEXT_MAX, "ramet-cursor 1 %" PRIu64, n);

	return len +
	       (size_t)snprintf(out + len, CURSOR_TEXT_MAX - len, " %08x\n", crc32c(0, out, len));
}

/* Accepts exactly what cursor_print prints, byte by byte. */
bool cursor_parse(const char *text, size_t len, uint64_t *n)
{
	char copy[CURSOR_TEXT_MAX], again[CURSOR_TEXT_MAX];

	if (len >= sizeof(copy))
		return false;
	memcpy(copy, text, len);
	copy[len] = '\0';
	if (sscanf(copy, "ramet-cursor 1 %20" SCNu64, n) != 1)
		return false;
	return cursor_print(again, *n) == len && memcmp(text, again, len) == 0;
}

int cursor_load(int dir, uint64_t *n, struct err *e)
{
	scoped_fd int fd = openat(dir, NAME, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	char text[CURSOR_TEXT_MAX];

	if (fd < 0 && errno == ENOENT)
		return 0;
	ssize_t len = fd < 0 ? -1 : read(fd, text, sizeof(text));
	if (len < 0)
		return err_set(e, errno, "read the webhooks' cursor");
	if (!cursor_parse(text, (size_t)len, n))
		return err_say(e, EBADMSG, "the webhooks' cursor is damaged");
	return 1;
}

int cursor_save(int dir, uint64_t n, struct err *e)
{
	scoped_fd int fd =
		openat(dir, NAME_NEW, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	char text[CURSOR_TEXT_MAX];
	size_t len = cursor_print(text, n);

	if (fd < 0 || write(fd, text, len) != (ssize_t)len || fdatasync(fd) < 0 ||
	    renameat(dir, NAME_NEW, dir, NAME) < 0)
		return err_set(e, errno, "write the webhooks' cursor");
	return 0;
}
