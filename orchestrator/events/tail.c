// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/events/tail.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"

#define AGES_MAX 1000 /* the maximum of the setting audit_files */

void tail_init(struct tail *t, int dir, uint64_t next)
{
	*t = (struct tail){.dir = dir, .next = next, .fd = -1};
}

void tail_fini(struct tail *t)
{
	close_fd(&t->fd);
}

/* --- lines of the open file ----------------------------------------------------------------- */
/* Moves the bytes that were not taken to the front of the buffer and reads more; returns false when
 * the file has no more. */
static bool fill(struct tail *t)
{
	t->len -= t->taken;
	memmove(t->buf, t->buf + t->taken, t->len);
	t->taken = 0;
	if (t->fd < 0)
		return false;
	if (t->len == sizeof(t->buf)) { /* the buffer has no newline */
		t->skipping = true;
		t->len = 0;
	}
	ssize_t n = pread(t->fd, t->buf + t->len, sizeof(t->buf) - t->len, (off_t)t->offset);
	if (n <= 0)
		return false;
	t->offset += (uint64_t)n;
	t->len += (size_t)n;
	return true;
}

/* Takes the bytes up to the next newline; false when the buffer has none. */
static bool take_raw(struct tail *t, const char **line, size_t *len)
{
	const char *start = t->buf + t->taken;
	const char *end = memchr(start, '\n', t->len - t->taken);

	if (!end)
		return false;
	*line = start;
	*len = (size_t)(end - start);
	t->taken += *len + 1;
	return true;
}

/* Takes the next valid line that was not taken yet. */
static bool take_line(struct tail *t, struct audit_line *head, const char **line, size_t *len)
{
	while (take_raw(t, line, len)) {
		bool rest = t->skipping;

		t->skipping = false;
		if (rest || !audit_line_parse(head, *line, *len) || head->n < t->next)
			continue;
		if (t->next)
			t->gone += head->n - t->next;
		t->next = head->n + 1;
		return true;
	}
	return false;
}

/* --- which file ----------------------------------------------------------------------------- */

static int open_age(const struct tail *t, unsigned age)
{
	char name[32];

	snprintf(name, sizeof(name), age ? AUDIT_FILE ".%u" : AUDIT_FILE, age);
	return openat(t->dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
}

/* Returns the number of the first line of a file; 0: it has none. */
static uint64_t first_of(int fd)
{
	struct tail probe;
	struct audit_line head;
	const char *line;
	size_t len;

	tail_init(&probe, -1, 0);
	probe.fd = fd;
	return fill(&probe) && take_line(&probe, &head, &line, &len) ? head.n : 0;
}

/* Opens the newest file whose first line is not after the next line to read, or else the oldest
 * file. Returns -1 if no file has a line. */
static int find_file(const struct tail *t)
{
	int found = -1;

	for (unsigned age = 0; age < AGES_MAX; age++) {
		int fd = open_age(t, age);
		uint64_t first = fd < 0 ? 0 : first_of(fd);

		if (fd < 0 && age) /* during a rotation, the current file is briefly missing */
			break;
		if (!first) {
			close_fd(&fd);
			continue;
		}
		close_fd(&found);
		found = fd;
		if (first <= t->next)
			break;
	}
	return found;
}

static bool same_file(int a, int b, uint64_t *size)
{
	struct stat sa, sb;

	if (a < 0 || b < 0 || fstat(a, &sa) < 0 || fstat(b, &sb) < 0)
		return false;
	*size = (uint64_t)sa.st_size;
	return sa.st_dev == sb.st_dev && sa.st_ino == sb.st_ino;
}

/* At the end of the open file, opens the next one. Returns true when there is more to read, in that
 * or in the open file. */
static bool move_on(struct tail *t)
{
	uint64_t size;
	scoped_fd int current = open_age(t, 0);

	if (same_file(t->fd, current, &size))
		return size > t->offset;
	scoped_fd int found = find_file(t);
	if (found < 0)
		return false;
	if (same_file(t->fd, found, &size))
		return size > t->offset;
	close_fd(&t->fd);
	t->fd = take_fd(&found);
	t->offset = t->len = t->taken = 0;
	t->skipping = false;
	return true;
}

bool tail_next(struct tail *t, struct audit_line *head, const char **line, size_t *len)
{
	for (;;) {
		if (take_line(t, head, line, len))
			return true;
		if (!fill(t) && !move_on(t))
			return false;
	}
}
