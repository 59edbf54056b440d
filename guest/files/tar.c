// SPDX-License-Identifier: Apache-2.0
#include "guest/files/tar.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"

/* Offsets and lengths of a header's fields (POSIX.1-2017, pax, "ustar Interchange Format"). */
enum {
	NAME = 0,
	NAME_LEN = 100,
	MODE = 100,
	UID = 108,
	GID = 116,
	SHORT_LEN = 8,
	SIZE = 124,
	MTIME = 136,
	LONG_LEN = 12,
	SUM = 148,
	TYPE = 156,
	TARGET = 157,
	MAGIC = 257,
	PREFIX = 345,
	PREFIX_LEN = 155,
};

static int broken(struct err *e, const char *text)
{
	return err_say(e, EBADMSG, "the archive is broken: %s", text);
}

void tar_begin(struct tar_reader *t, const struct tar_sink *sink, void *arg)
{
	*t = (struct tar_reader){.sink = sink, .arg = arg};
}

void tar_free(struct tar_reader *t)
{
	free(t->extra);
	t->extra = NULL;
}

/* --- numbers and texts ---------------------------------------------------------------------- */

/* Reads a number in octal, or in GNU's binary form, big-endian after a first byte of 0x80 or 0xff
 * (negative). */
static int get_number(const uint8_t *at, size_t len, int64_t *out, struct err *e)
{
	uint64_t n = 0;
	size_t i = 0;

	if (at[0] == 0x80 || at[0] == 0xff) {
		uint64_t sign = at[0] == 0xff ? 0xff : 0;

		for (i = 1; i < len; i++) {
			if (i + 8 < len && at[i] != sign)
				return broken(e, "a number is too large");
			n = n << 8 | at[i];
		}
		if (len < 9 && sign) /* fills up the bytes that the field does not have */
			n |= UINT64_MAX << 8 * (len - 1);
		*out = (int64_t)n;
		if (len >= 9 && (*out < 0) != (sign != 0))
			return broken(e, "a number is too large");
		return 0;
	}
	while (i < len && at[i] == ' ')
		i++;
	for (; i < len && at[i] >= '0' && at[i] <= '7'; i++)
		n = n << 3 | (uint64_t)(at[i] - '0'); /* at most 36 bits */
	if (i < len && at[i] != ' ' && at[i] != '\0')
		return broken(e, "a number is not octal");
	*out = (int64_t)n;
	return 0;
}

static int get_id(const uint8_t *at, uint32_t *out, struct err *e)
{
	int64_t n;
	int bad = get_number(at, SHORT_LEN, &n, e);

	if (bad)
		return bad;
	if (n < 0 || n >= UINT32_MAX)
		return broken(e, "the number of a user or group is too large");
	*out = (uint32_t)n;
	return 0;
}

static bool sum_is_right(const uint8_t *header)
{
	uint64_t sum = 8 * ' ';
	int64_t want;
	struct err e;

	for (size_t i = 0; i < TAR_BLOCK; i++)
		sum += i >= SUM && i < SUM + SHORT_LEN ? 0 : header[i];
	return get_number(header + SUM, SHORT_LEN, &want, &e) == 0 && (uint64_t)want == sum;
}

/* Copies a relative path without empty parts and ".". */
static int clean_path(char *out, const char *path, struct err *e)
{
	size_t len = 0;

	if (path[0] == '/')
		return err_say(e, EBADMSG, "the archive is refused: %.100s is an absolute path",
			       path);
	while (*path) {
		size_t part = strcspn(path, "/");

		if (part == 2 && memcmp(path, "..", 2) == 0)
			return err_say(e, EBADMSG, "the archive is refused: a path contains ..");
		if (part > NAME_MAX)
			return broken(e, "a name is longer than 255 bytes");
		if (part && !(part == 1 && path[0] == '.')) {
			if (len)
				out[len++] = '/';
			memmove(out + len, path, part);
			len += part;
		}
		path += part;
		path += *path == '/';
	}
	out[len] = '\0';
	return 0;
}

/* --- extended headers ----------------------------------------------------------------------- */

static int set_text(char out[PATH_MAX], const char *value, size_t len, struct err *e)
{
	if (len >= PATH_MAX || memchr(value, 0, len))
		return broken(e, "a path is too long, or contains a zero byte");
	memcpy(out, value, len);
	out[len] = '\0';
	return 0;
}

/* Reads decimal digits. Returns how many, at most 18. */
static size_t digits(const char *at, size_t len, uint64_t *out)
{
	size_t i = 0;

	for (*out = 0; i < len && i < 18 && at[i] >= '0' && at[i] <= '9'; i++)
		*out = *out * 10 + (uint64_t)(at[i] - '0');
	return i;
}

static int set_decimal(uint64_t *out, uint64_t limit, const char *value, size_t len, struct err *e)
{
	if (!len || digits(value, len, out) != len || *out > limit)
		return broken(e, "a number in an extended header is invalid");
	return 0;
}

/* Reads "[-]SECONDS[.FRACTION]". */
static int set_time(struct tar_entry *n, const char *value, size_t len, struct err *e)
{
	bool negative = len && value[0] == '-';
	size_t at = negative, got;
	uint64_t seconds, ns = 0;

	got = digits(value + at, len - at, &seconds);
	at += got;
	if (got && at < len && value[at] == '.') {
		uint64_t unit = 100000000;

		for (at++; at < len && value[at] >= '0' && value[at] <= '9'; at++, unit /= 10)
			ns += unit * (uint64_t)(value[at] - '0');
	}
	if (!got || at != len)
		return broken(e, "a time in an extended header is invalid");
	n->mtime_s = negative ? -(int64_t)seconds : (int64_t)seconds;
	if (negative && ns) {
		n->mtime_s--;
		ns = 1000000000 - ns;
	}
	n->mtime_ns = (uint32_t)ns;
	return 0;
}

static bool key_is(const char *key, size_t len, const char *want)
{
	return strlen(want) == len && memcmp(key, want, len) == 0;
}

static int set_value(struct tar_extra *x, const char *key, size_t key_len, const char *value,
		     size_t len, struct err *e)
{
	uint64_t n;
	int bad = 0;

	if (key_is(key, key_len, "path")) {
		x->has_path = true;
		bad = set_text(x->values.path, value, len, e);
	} else if (key_is(key, key_len, "linkpath")) {
		x->has_target = true;
		bad = set_text(x->values.target, value, len, e);
	} else if (key_is(key, key_len, "size")) {
		x->has_size = true;
		bad = set_decimal(&x->values.size, INT64_MAX, value, len, e);
	} else if (key_is(key, key_len, "mtime")) {
		x->has_mtime = true;
		bad = set_time(&x->values, value, len, e);
	} else if (key_is(key, key_len, "uid")) {
		x->has_uid = true;
		bad = set_decimal(&n, UINT32_MAX - 1, value, len, e);
		x->values.uid = bad ? 0 : (uint32_t)n;
	} else if (key_is(key, key_len, "gid")) {
		x->has_gid = true;
		bad = set_decimal(&n, UINT32_MAX - 1, value, len, e);
		x->values.gid = bad ? 0 : (uint32_t)n;
	} else if (key_len > 11 && memcmp(key, "GNU.sparse.", 11) == 0) {
		bad = err_say(e, EBADMSG, "the archive is refused: sparse files are not supported");
	}
	return bad;
}

/* Reads records "LENGTH KEY=VALUE\n". */
static int read_pax(struct tar_reader *t, struct err *e)
{
	const char *at = (const char *)t->extra, *end = at + t->extra_len;

	while (at < end) {
		uint64_t len;
		size_t n = digits(at, (size_t)(end - at), &len);

		if (!n || len > (size_t)(end - at) || len < n + 3 || at[n] != ' ' ||
		    at[len - 1] != '\n')
			return broken(e, "an extended header is invalid");
		const char *key = at + n + 1, *stop = at + len - 1;
		const char *equals = memchr(key, '=', (size_t)(stop - key));
		if (!equals)
			return broken(e, "an extended header is invalid");
		int bad = set_value(&t->next, key, (size_t)(equals - key), equals + 1,
				    (size_t)(stop - equals - 1), e);
		if (bad)
			return bad;
		at += len;
	}
	return 0;
}

static int end_extra(struct tar_reader *t, struct err *e)
{
	size_t len = strnlen((const char *)t->extra, t->extra_len);

	switch (t->extra_type) {
	case 'L':
		t->next.has_path = true;
		return set_text(t->next.values.path, (const char *)t->extra, len, e);
	case 'K':
		t->next.has_target = true;
		return set_text(t->next.values.target, (const char *)t->extra, len, e);
	case 'x':
		return read_pax(t, e);
	default: /* a global header: comments, mostly */
		return 0;
	}
}

/* --- headers -------------------------------------------------------------------------------- */

/* Waits for `size` bytes, which are followed by zeros up to a whole block. */
static void expect(struct tar_reader *t, enum tar_state state, uint64_t size)
{
	t->left = size;
	t->padding = (unsigned)(-size % TAR_BLOCK);
	t->state = state;
}

static int begin_extra(struct tar_reader *t, uint8_t type, uint64_t size, struct err *e)
{
	if (size > TAR_EXTRA_MAX)
		return broken(e, "an extended header is too long");
	free(t->extra);
	t->extra = malloc(size + 1);
	if (!t->extra)
		return err_set(e, ENOMEM, "read the archive");
	t->extra_type = type;
	t->extra_len = 0;
	expect(t, TAR_EXTRA, size);
	return 0;
}

static int type_of(uint8_t flag, enum tar_type *out, struct err *e)
{
	switch (flag) {
	case '\0':
	case '0':
	case '7':
		*out = TAR_FILE;
		return 0;
	case '1':
		*out = TAR_HARD_LINK;
		return 0;
	case '2':
		*out = TAR_LINK;
		return 0;
	case '5':
		*out = TAR_FOLDER;
		return 0;
	case '6':
		*out = TAR_FIFO;
		return 0;
	case '3':
	case '4':
		return err_say(e, EBADMSG, "the archive is refused: it contains a device");
	case 'S':
		return err_say(e, EBADMSG,
			       "the archive is refused: sparse files are not supported");
	default:
		return err_say(e, EBADMSG,
			       "the archive is refused: it contains an entry of type 0x%02x", flag);
	}
}

/* Copies the path in the header, with its prefix. `out` holds more than both. */
static void header_path(const uint8_t *header, char out[PATH_MAX])
{
	const char *name = (const char *)header + NAME, *prefix = (const char *)header + PREFIX;
	size_t len = 0, name_len = strnlen(name, NAME_LEN);

	/* GNU's old format has other fields there. */
	if (memcmp(header + MAGIC, "ustar", 6) == 0)
		len = strnlen(prefix, PREFIX_LEN);
	memcpy(out, prefix, len);
	if (len)
		out[len++] = '/';
	memcpy(out + len, name, name_len);
	out[len + name_len] = '\0';
}

static int read_paths(struct tar_reader *t, struct tar_entry *n, struct err *e)
{
	const char *target = (const char *)t->header + TARGET;

	if (t->next.has_path)
		strcpy(n->path, t->next.values.path);
	else
		header_path(t->header, n->path);
	if (t->next.has_target) {
		strcpy(n->target, t->next.values.target);
	} else {
		size_t len = strnlen(target, NAME_LEN);

		memcpy(n->target, target, len);
		n->target[len] = '\0';
	}
	/* Before pax, a folder was a file whose name ends with a slash. */
	size_t len = strlen(n->path);
	if (n->type == TAR_FILE && len && n->path[len - 1] == '/')
		n->type = TAR_FOLDER;
	int bad = clean_path(n->path, n->path, e);
	if (!bad && n->type == TAR_HARD_LINK)
		bad = clean_path(n->target, n->target, e);
	if (bad)
		return bad;
	bool links = n->type == TAR_HARD_LINK || n->type == TAR_LINK;
	if ((!n->path[0] && n->type != TAR_FOLDER) || (links && !n->target[0]))
		return broken(e, "a name is empty");
	return 0;
}

static int read_numbers(struct tar_reader *t, struct tar_entry *n, int64_t size, struct err *e)
{
	const struct tar_extra *x = &t->next;
	int64_t mode;

	int bad = get_number(t->header + MODE, SHORT_LEN, &mode, e);
	if (!bad && !x->has_uid)
		bad = get_id(t->header + UID, &n->uid, e);
	if (!bad && !x->has_gid)
		bad = get_id(t->header + GID, &n->gid, e);
	if (!bad && !x->has_mtime)
		bad = get_number(t->header + MTIME, LONG_LEN, &n->mtime_s, e);
	if (bad)
		return bad;
	n->mode = (uint32_t)(mode & 07777);
	if (x->has_uid)
		n->uid = x->values.uid;
	if (x->has_gid)
		n->gid = x->values.gid;
	if (x->has_mtime) {
		n->mtime_s = x->values.mtime_s;
		n->mtime_ns = x->values.mtime_ns;
	}
	n->size = 0;
	if (n->type == TAR_FILE)
		n->size = x->has_size ? x->values.size : (uint64_t)size;
	return 0;
}

static int complete(struct tar_reader *t, struct err *e)
{
	int bad = t->sink->complete(t->arg, &t->entry, e);

	t->entries += !bad;
	return bad;
}

static int begin_entry(struct tar_reader *t, int64_t size, struct err *e)
{
	struct tar_entry *n = &t->entry;

	*n = (struct tar_entry){0};
	int bad = type_of(t->header[TYPE], &n->type, e);
	if (!bad)
		bad = read_paths(t, n, e);
	if (!bad)
		bad = read_numbers(t, n, size, e);
	if (bad)
		return bad;
	memset(&t->next, 0, offsetof(struct tar_extra, values));
	bad = t->sink->entry(t->arg, n, e);
	if (bad)
		return bad;
	expect(t, TAR_BODY, n->size);
	return n->size ? 0 : complete(t, e);
}

static bool all_zero(const uint8_t *block)
{
	return !block[0] && memcmp(block, block + 1, TAR_BLOCK - 1) == 0;
}

static int read_header(struct tar_reader *t, struct err *e)
{
	int64_t size;

	t->header_len = 0;
	if (all_zero(t->header)) {
		t->state = TAR_ENDED;
		return 0;
	}
	if (t->header[0] == 0x1f && t->header[1] == 0x8b)
		return err_say(e, EBADMSG,
			       "the archive is compressed with gzip: send it uncompressed");
	if (!sum_is_right(t->header))
		return broken(e, "the checksum of a header is wrong; or it is not a tar archive");
	int bad = get_number(t->header + SIZE, LONG_LEN, &size, e);
	if (bad)
		return bad;
	if (size < 0)
		return broken(e, "a size is negative");
	uint8_t type = t->header[TYPE];
	if (type == 'x' || type == 'g' || type == 'L' || type == 'K')
		return begin_extra(t, type, (uint64_t)size, e);
	return begin_entry(t, size, e);
}

/* --- bytes ---------------------------------------------------------------------------------- */

static size_t take_header(struct tar_reader *t, const uint8_t *data, size_t len)
{
	size_t n = min_u64(len, TAR_BLOCK - t->header_len);

	memcpy(t->header + t->header_len, data, n);
	t->header_len += n;
	return n;
}

/* Handles the bytes of the current state. Returns how many, or a negative errno. */
static ssize_t take(struct tar_reader *t, const uint8_t *data, size_t len, struct err *e)
{
	size_t n = min_u64(len, t->left);
	int bad = 0;

	switch (t->state) {
	case TAR_HEADER:
		n = take_header(t, data, len);
		if (t->header_len == TAR_BLOCK)
			bad = read_header(t, e);
		break;
	case TAR_EXTRA:
		memcpy(t->extra + t->extra_len, data, n);
		t->extra_len += n;
		t->left -= n;
		if (!t->left)
			bad = end_extra(t, e);
		break;
	case TAR_BODY:
		bad = t->sink->bytes(t->arg, data, n, e);
		t->left -= n;
		if (!bad && !t->left)
			bad = complete(t, e);
		break;
	case TAR_PADDING:
		t->left -= n;
		break;
	case TAR_ENDED:
		n = len;
		break;
	}
	return bad ? bad : (ssize_t)n;
}

/* Moves on from a state with nothing left to read. */
static void move_on(struct tar_reader *t)
{
	if (t->left || t->state == TAR_HEADER || t->state == TAR_ENDED)
		return;
	if (t->state != TAR_PADDING && t->padding) {
		t->left = t->padding;
		t->state = TAR_PADDING;
		return;
	}
	t->state = TAR_HEADER;
}

int tar_feed(struct tar_reader *t, const uint8_t *data, size_t len, struct err *e)
{
	while (len) {
		ssize_t n = take(t, data, len, e);

		if (n < 0)
			return (int)n;
		move_on(t);
		data += n;
		len -= (size_t)n;
	}
	return 0;
}

int tar_finish(const struct tar_reader *t, struct err *e)
{
	if (t->state == TAR_ENDED)
		return 0;
	return broken(e, "it ends in the middle");
}
