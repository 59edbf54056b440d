// SPDX-License-Identifier: Apache-2.0
/*
 * Reads a tar archive from a client, as the agent does before it unpacks it. The first byte chooses
 * how many bytes arrive at a time.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "guest/files/tar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct {
	bool open; /* an entry is not complete */
	uint64_t left;
} now;

static struct {
	const uint8_t *data;
	size_t left, step;
} in;

static void must(bool holds)
{
	if (!holds)
		abort();
}

/* Returns whether the path stays within a folder. */
static bool is_clean(const char *path)
{
	while (*path) {
		size_t len = strcspn(path, "/");

		if (!len || (len == 1 && path[0] == '.') || (len == 2 && !memcmp(path, "..", 2)))
			return false;
		path += len;
		if (*path && !*++path)
			return false;
	}
	return true;
}

static int on_entry(void *arg, const struct tar_entry *n, struct err *e)
{
	must(!now.open);
	must(memchr(n->path, 0, sizeof(n->path)) && is_clean(n->path));
	must(memchr(n->target, 0, sizeof(n->target)) != NULL);
	must(n->path[0] || n->type == TAR_FOLDER);
	must(n->type != TAR_HARD_LINK || (n->target[0] && is_clean(n->target)));
	must(n->type != TAR_LINK || n->target[0]);
	must(n->mode <= 07777 && n->uid < UINT32_MAX && n->gid < UINT32_MAX);
	must(n->mtime_ns < 1000000000 && (!n->size || n->type == TAR_FILE));
	now.open = true;
	now.left = n->size;
	return n->path[0] == '!' ? err_say(e, EIO, "refused") : 0;
}

static int on_bytes(void *arg, const uint8_t *data, size_t len, struct err *e)
{
	must(now.open && len && len <= now.left);
	now.left -= len;
	return 0;
}

static int on_complete(void *arg, const struct tar_entry *n, struct err *e)
{
	must(now.open && !now.left);
	now.open = false;
	return 0;
}

static size_t on_read(void *arg, const uint8_t **data)
{
	size_t n = min_u64(in.step, in.left);

	*data = in.data;
	in.data += n;
	in.left -= n;
	return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct tar_calls calls = {on_read, on_entry, on_bytes, on_complete};
	uint64_t entries;
	struct err e;

	if (!size)
		return 0;
	in.step = data[0] * 16 + 1;
	in.data = data + 1;
	in.left = size - 1;
	now.open = false;
	if (tar_read(&calls, NULL, &entries, &e) == 0)
		must(!now.open);
	return 0;
}
