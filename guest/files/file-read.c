// SPDX-License-Identifier: Apache-2.0
#include "guest/files/file-work.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/num.h"
#include "guest/files/worker-io.h"

static void send_file(const char *path, const struct stat *st)
{
	size_t len = strlen(path);
	struct wire w = worker_io_frame(AGENT_FILE, 4 + len + 12 + 8 + 8 + 4);

	wire_put_str(&w, path, len);
	wire_put_u32(&w, st->st_mode);
	wire_put_u32(&w, st->st_uid);
	wire_put_u32(&w, st->st_gid);
	wire_put_u64(&w, S_ISREG(st->st_mode) ? (uint64_t)st->st_size : 0);
	wire_put_u64(&w, (uint64_t)st->st_mtim.tv_sec * 1000000000 + (uint64_t)st->st_mtim.tv_nsec);
	wire_put_str(&w, "", 0);
}

/* Refuses files that open(2) would wait for, or that opening alone would affect. */
static int open_file(const char *path, struct stat *st)
{
	const int flags = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
	int fd = -1;

	if (stat(path, st) < 0)
		worker_io_fail_path("read", path);
	if (S_ISREG(st->st_mode)) {
		fd = open(path, flags);
		/* The path may name another file by now. */
		if (fd < 0 || fstat(fd, st) < 0)
			worker_io_fail_path("read", path);
	}
	if (S_ISDIR(st->st_mode))
		worker_io_fail(EISDIR, "read %.100s: %s", path, strerror(EISDIR));
	if (!S_ISREG(st->st_mode))
		worker_io_fail(EINVAL, "read %.100s: not a regular file", path);
	return fd;
}

/* A frame with its header fits in one packet of vsock: a remainder would cost another packet and
 * kick. */
#define FRAME_BYTES (AGENT_PAYLOAD_MAX - AGENT_HEADER_SIZE)

static void send_bytes(int fd, const char *path, off_t at, uint64_t left)
{
	while (left) {
		uint8_t *room = worker_io_room();
		ssize_t n = pread(fd, room, min_u64(left, FRAME_BYTES), at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			worker_io_fail_path("read", path);
		if (n == 0)
			return;
		worker_io_send(AGENT_BYTES, (size_t)n);
		at += n;
		left -= (uint64_t)n;
	}
}

void serve_get(const struct file_request *r)
{
	struct stat st;
	int fd = open_file(r->path, &st);
	uint64_t size = (uint64_t)st.st_size, left = r->size;

	send_file(r->path, &st);
	/* Files of proc have size 0 and yield bytes; bytes appended meanwhile are left out. */
	if (size)
		left = r->offset < size ? min_u64(left, size - r->offset) : 0;
	if (r->offset <= INT64_MAX) {
		posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
		send_bytes(fd, r->path, (off_t)r->offset, left);
	}
	worker_io_done();
}
