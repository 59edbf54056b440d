// SPDX-License-Identifier: Apache-2.0
/* OpenSSL's newer interface links all algorithms, 3.6 MB; the deprecated one takes 12 KiB. */
#define OPENSSL_SUPPRESS_DEPRECATED

#include "guest/files/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <openssl/sha.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/wire.h"
#include "guest/files/descent.h"
#include "guest/files/worker-io.h"

#define READ_BYTES (256u << 10)
#define LONG_READ  (8u << 20) /* before a larger file is read, the entries so far are sent */

static struct {
	struct descent at;
	char *roots[AGENT_PATHS_MAX];
	size_t root_count;
} tree;

/* --- answers -------------------------------------------------------------------------------- */

static void emit(const struct statx *st, uint64_t size, const void *content, size_t content_len)
{
	struct wire w =
		worker_io_frame(AGENT_ENTRY, 4 + tree.at.path_len + 12 + 8 + 4 + content_len);

	wire_put_str(&w, tree.at.path, tree.at.path_len);
	wire_put_u32(&w, st->stx_mode);
	wire_put_u32(&w, st->stx_uid);
	wire_put_u32(&w, st->stx_gid);
	wire_put_u64(&w, size);
	wire_put_str(&w, content, content_len);
}

/* --- files ---------------------------------------------------------------------------------- */

/*
 * Reads like pread, but drops pages that were not cached before: a listing should neither fill the
 * guest's memory nor evict what its programs use.
 */
static ssize_t read_at(int fd, void *buf, size_t len, off_t at)
{
	struct iovec vec = {.iov_base = buf, .iov_len = len};
	ssize_t n = preadv2(fd, &vec, 1, at, RWF_NOWAIT);

	if (n >= 0 || (errno != EAGAIN && errno != EOPNOTSUPP))
		return n;
	n = pread(fd, buf, len, at);
	if (n > 0)
		posix_fadvise(fd, at, n, POSIX_FADV_DONTNEED);
	return n;
}

/* Returns true for files of proc and sysfs. The kernel generates them as they are read: their sizes
 * mean nothing, and some never end. */
static bool is_of_kernel(int fd)
{
	struct statfs fs;

	return fstatfs(fd, &fs) < 0 || fs.f_type == PROC_SUPER_MAGIC || fs.f_type == SYSFS_MAGIC;
}

/* Hashes the file up to the size it had when it was opened, and stores how many bytes that were.
 * Returns false when it cannot be read. */
static bool hash_open_file(int fd, uint64_t *size, uint8_t hash[AGENT_HASH_LEN])
{
	static uint8_t buf[READ_BYTES];
	SHA256_CTX sum;
	struct stat st;
	off_t at = 0;

	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || (st.st_size && is_of_kernel(fd)))
		return false;
	posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM); /* nothing is read ahead */
	SHA256_Init(&sum);
	while (at < st.st_size) {
		size_t want = st.st_size - at < READ_BYTES ? (size_t)(st.st_size - at) : READ_BYTES;
		ssize_t n = read_at(fd, buf, want, at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return false;
		if (n == 0)
			break;
		SHA256_Update(&sum, buf, (size_t)n);
		at += n;
	}
	SHA256_Final(hash, &sum);
	*size = (uint64_t)at;
	return true;
}

static void list_empty_file(const struct statx *st)
{
	uint8_t hash[AGENT_HASH_LEN];
	SHA256_CTX sum;

	SHA256_Init(&sum);
	SHA256_Final(hash, &sum);
	emit(st, 0, hash, sizeof(hash));
}

static void list_file(int folder, const char *name, const struct statx *st)
{
	/* The name may have changed its type by now: do not wait for a FIFO or follow a link. */
	const int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
	uint8_t hash[AGENT_HASH_LEN];
	uint64_t size = st->stx_size;

	if (size > LONG_READ)
		worker_io_flush();
	scoped_fd int fd = openat(folder, name, flags);
	if (fd < 0 && errno == ENOENT)
		return;
	bool read = fd >= 0 && hash_open_file(fd, &size, hash);
	emit(st, size, hash, read ? sizeof(hash) : 0);
}

static void list_link(int folder, const char *name, const struct statx *st)
{
	char target[AGENT_PATH_MAX];
	ssize_t n = readlinkat(folder, name, target, sizeof(target));

	if (n < 0 && (errno == ENOENT || errno == EINVAL))
		return; /* gone, or no longer a link */
	if (n < 0)
		worker_io_fail_path("read the link", tree.at.path);
	emit(st, 0, target, (size_t)n);
}

/* --- folders -------------------------------------------------------------------------------- */

/* Opens the current folder and reads its names. */
static void enter(int folder, const char *name)
{
	int fd = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0 && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP))
		return; /* gone, or no longer a folder */
	if (fd < 0)
		worker_io_fail_path("open the folder", tree.at.path);
	descent_enter(&tree.at, fd);
}

static bool is_at_or_below(const char *path, const char *folder)
{
	size_t len = strcmp(folder, "/") == 0 ? 0 : strlen(folder);

	return strncmp(path, folder, len) == 0 && (path[len] == '/' || path[len] == '\0');
}

/* Returns false for a mount point, unless it or something in it was requested. */
static bool may_enter(const struct statx *st)
{
	if (!(st->stx_attributes & STATX_ATTR_MOUNT_ROOT))
		return true;
	for (size_t i = 0; i < tree.root_count; i++)
		if (is_at_or_below(tree.roots[i], tree.at.path))
			return true;
	return false;
}

/* Lists what tree.at.path names. Returns true for a folder. */
static bool list_name(int folder, const char *name, bool is_root)
{
	struct statx st;

	if (statx(folder, name, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, STATX_BASIC_STATS, &st) <
	    0) {
		if (errno == ENOENT || (is_root && errno == ENOTDIR))
			return false;
		worker_io_fail_path("stat", tree.at.path);
	}
	if (S_ISREG(st.stx_mode) && !st.stx_size) {
		list_empty_file(&st); /* not opened: in /proc, opening alone may have an effect */
	} else if (S_ISREG(st.stx_mode)) {
		list_file(folder, name, &st);
	} else if (S_ISLNK(st.stx_mode)) {
		list_link(folder, name, &st);
	} else {
		bool device = S_ISCHR(st.stx_mode) || S_ISBLK(st.stx_mode);
		emit(&st, device ? makedev(st.stx_rdev_major, st.stx_rdev_minor) : 0, "", 0);
	}
	if (!S_ISDIR(st.stx_mode))
		return false;
	if (is_root || may_enter(&st))
		enter(folder, name);
	return true;
}

static void walk(void)
{
	while (tree.at.depth) {
		int folder;
		const char *name = descent_next(&tree.at, &folder);

		if (!name)
			continue;
		if (!descent_set_path(&tree.at, name, DESCENT_PATH_MAX))
			worker_io_fail(ENAMETOOLONG, "a path below %.100s has more than %u bytes",
				       tree.at.path, DESCENT_PATH_MAX);
		list_name(folder, name, false);
	}
}

/* --- requests --------------------------------------------------------------------- */

/* Returns the path without double and trailing slashes and ".". */
static char *plain_path(const uint8_t *path, size_t len)
{
	char *given = strndup((const char *)path, len), *plain = calloc(1, len + 2), *rest = NULL;

	if (!given || !plain)
		worker_io_fail(ENOMEM, "no memory for the paths");
	for (char *part = strtok_r(given, "/", &rest); part; part = strtok_r(NULL, "/", &rest)) {
		if (strcmp(part, "..") == 0)
			worker_io_fail(EINVAL, "a path must not contain ..: %.*s",
				       (int)(len < 100 ? len : 100), path);
		if (strcmp(part, ".") == 0)
			continue;
		strcat(strcat(plain, "/"), part);
	}
	free(given);
	return plain[0] ? plain : strcpy(plain, "/");
}

/* Sorts a slash before all other bytes, so that a folder is followed by its content. */
static int by_tree_order(const void *a, const void *b)
{
	const uint8_t *x = *(const uint8_t *const *)a, *y = *(const uint8_t *const *)b;

	while (*x && *x == *y)
		x++, y++;
	return (*x == '/' ? 1 : *x ? *x + 1 : 0) - (*y == '/' ? 1 : *y ? *y + 1 : 0);
}

static void list_roots(void)
{
	const char *listed = NULL; /* the last root that is a folder */

	for (size_t i = 0; i < tree.root_count; i++) {
		const char *root = tree.roots[i];

		if (listed && is_at_or_below(root, listed))
			continue;
		if (i && strcmp(root, tree.roots[i - 1]) == 0)
			continue;
		tree.at.path_len = strlen(root);
		memcpy(tree.at.path, root, tree.at.path_len + 1);
		if (list_name(AT_FDCWD, root, true))
			listed = root;
		walk();
	}
}

void tree_serve(const void *request)
{
	const struct tree_request *r = request;

	for (uint32_t i = 0; i < r->count; i++)
		tree.roots[tree.root_count++] = plain_path(r->paths[i].text, r->paths[i].len);
	qsort(tree.roots, tree.root_count, sizeof(*tree.roots), by_tree_order);
	list_roots();
	worker_io_done();
}
