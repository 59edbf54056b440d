// SPDX-License-Identifier: Apache-2.0
#include "guest/files/tar.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <langinfo.h>
#include <stdbool.h>
#include <string.h>

struct reading {
	const struct tar_calls *calls;
	void *arg;
	struct archive *archive;
	bool begun, gzip;
	size_t silent; /* bytes read since libarchive last returned a header or data */
	struct tar_entry entry;
};

/*
 * Replaces the C library's nl_langinfo(3) in the whole program. libarchive asks it for the
 * character set of names. If that is UTF-8, as in pax headers, libarchive copies names, even
 * invalid ones. For any other, it would convert them with tables that iconv(3) reads from the
 * guest's files.
 */
char *nl_langinfo(nl_item item)
{
	static char charset[] = "UTF-8", unknown[] = "";

	return item == CODESET ? charset : unknown;
}

static int broken(struct err *e, const char *text)
{
	return err_say(e, EBADMSG, "the archive is broken: %.150s", text);
}

static int refused(struct err *e, const char *text)
{
	return err_say(e, EBADMSG, "the archive is refused: %s", text);
}

/* Returns the error of libarchive. */
static int failed(const struct reading *r, struct err *e)
{
	const char *text = archive_error_string(r->archive);

	if (archive_errno(r->archive) == ENOMEM)
		return err_set(e, ENOMEM, "read the archive");
	if (r->gzip)
		return err_say(e, EBADMSG,
			       "the archive is compressed with gzip: send it uncompressed");
	return broken(e, text ? text : "it ends in the middle");
}

/* --- headers -------------------------------------------------------------------------------- */

/* Copies a path, or the target of a link. */
static int copy_text(char out[PATH_MAX], const char *text, struct err *e)
{
	size_t len = text ? strlen(text) : 0;

	if (len >= PATH_MAX)
		return broken(e, "a path is too long");
	memcpy(out, text ? text : "", len + 1);
	return 0;
}

/* Removes empty parts and "." from a relative path. */
static int clean_path(char path[PATH_MAX], struct err *e)
{
	const char *at = path;
	size_t len = 0;

	if (path[0] == '/')
		return err_say(e, EBADMSG, "the archive is refused: %.100s is an absolute path",
			       path);
	while (*at) {
		size_t part = strcspn(at, "/");

		if (part == 2 && memcmp(at, "..", 2) == 0)
			return refused(e, "a path contains ..");
		if (part > NAME_MAX)
			return broken(e, "a name is longer than 255 bytes");
		if (part && !(part == 1 && at[0] == '.')) {
			if (len)
				path[len++] = '/';
			memmove(path + len, at, part);
			len += part;
		}
		at += part;
		at += *at == '/';
	}
	path[len] = '\0';
	return 0;
}

static int read_type(struct archive_entry *from, struct tar_entry *n, struct err *e)
{
	if (archive_entry_sparse_count(from))
		return refused(e, "sparse files are not supported");
	if (archive_entry_hardlink(from)) {
		n->type = TAR_HARD_LINK;
		return 0;
	}
	switch (archive_entry_filetype(from)) {
	case AE_IFREG:
		n->type = TAR_FILE;
		return 0;
	case AE_IFLNK:
		n->type = TAR_LINK;
		return 0;
	case AE_IFDIR:
		n->type = TAR_FOLDER;
		return 0;
	case AE_IFIFO:
		n->type = TAR_FIFO;
		return 0;
	case AE_IFCHR:
	case AE_IFBLK:
		return refused(e, "it contains a device");
	default:
		return refused(e, "it contains an entry of an unknown type");
	}
}

static int read_paths(struct archive_entry *from, struct tar_entry *n, struct err *e)
{
	bool links = n->type == TAR_HARD_LINK || n->type == TAR_LINK;
	int bad = copy_text(n->path, archive_entry_pathname(from), e);

	if (!bad)
		bad = clean_path(n->path, e);
	if (!bad && n->type == TAR_LINK)
		bad = copy_text(n->target, archive_entry_symlink(from), e);
	if (!bad && n->type == TAR_HARD_LINK)
		bad = copy_text(n->target, archive_entry_hardlink(from), e);
	if (!bad && n->type == TAR_HARD_LINK)
		bad = clean_path(n->target, e);
	if (bad)
		return bad;
	if ((!n->path[0] && n->type != TAR_FOLDER) || (links && !n->target[0]))
		return broken(e, "a name is empty");
	return 0;
}

static int read_numbers(struct archive_entry *from, struct tar_entry *n, struct err *e)
{
	int64_t uid = archive_entry_uid(from), gid = archive_entry_gid(from);

	if (uid < 0 || uid >= UINT32_MAX || gid < 0 || gid >= UINT32_MAX)
		return broken(e, "the number of a user or group is too large");
	n->uid = (uint32_t)uid;
	n->gid = (uint32_t)gid;
	n->mode = archive_entry_perm(from) & 07777;
	n->mtime_s = archive_entry_mtime(from);
	if (n->mtime_s >= 0) /* libarchive gets the fractions of times before 1970 wrong */
		n->mtime_ns = (uint32_t)archive_entry_mtime_nsec(from);
	if (n->type == TAR_FILE)
		n->size = (uint64_t)archive_entry_size(from);
	return 0;
}

static int read_entry(struct archive_entry *from, struct tar_entry *n, struct err *e)
{
	*n = (struct tar_entry){0};
	int bad = read_type(from, n, e);
	if (!bad)
		bad = read_paths(from, n, e);
	return bad ? bad : read_numbers(from, n, e);
}

/* Returns 1 with *out set, 0 after the last entry, or -errno. */
static int next_header(struct reading *r, struct archive_entry **out, struct err *e)
{
	struct archive *a = r->archive;

	r->silent = 0;
	int status = archive_read_next_header(a, out);
	if (status == ARCHIVE_OK)
		return 1;
	/* A name is not valid UTF-8; the entry has its bytes. */
	if (status == ARCHIVE_WARN && archive_errno(a) == EILSEQ)
		return 1;
	if (status != ARCHIVE_EOF)
		return failed(r, e);
	/* libarchive accepts an archive without the zeros that mark its end. */
	if (archive_filter_bytes(a, 0) == archive_read_header_position(a))
		return broken(e, "it ends in the middle");
	return 0;
}

/* --- bytes ---------------------------------------------------------------------------------- */

static la_ssize_t on_read(struct archive *a, void *arg, const void **out)
{
	struct reading *r = arg;
	const uint8_t *data = NULL;

	if (r->silent > TAR_HEADERS_MAX) {
		archive_set_error(a, EFBIG, "the headers of an entry are too long");
		return ARCHIVE_FATAL;
	}
	size_t n = r->calls->read(r->arg, &data);
	if (!r->begun)
		r->gzip = n >= 2 && data[0] == 0x1f && data[1] == 0x8b;
	r->begun = true;
	r->silent += n;
	*out = data;
	return (la_ssize_t)n;
}

/* Passes on the bytes of an entry that is a file; skips the bytes of any other entry. */
static int read_bytes(struct reading *r, struct err *e)
{
	const struct tar_entry *n = &r->entry;
	uint64_t done = 0;

	for (;;) {
		la_int64_t at;
		const void *data;
		size_t len;

		r->silent = 0;
		int status = archive_read_data_block(r->archive, &data, &len, &at);
		if (status == ARCHIVE_EOF)
			break;
		if (status != ARCHIVE_OK)
			return failed(r, e);
		if (n->type != TAR_FILE || !len)
			continue;
		if ((uint64_t)at != done || len > n->size - done)
			return refused(e, "sparse files are not supported");
		int bad = r->calls->bytes(r->arg, data, len, e);
		if (bad)
			return bad;
		done += len;
	}
	return done == n->size ? 0 : refused(e, "sparse files are not supported");
}

static int read_all(struct reading *r, uint64_t *entries, struct err *e)
{
	struct archive_entry *from;
	int more;

	if (archive_read_support_format_tar(r->archive) != ARCHIVE_OK ||
	    archive_read_open(r->archive, r, NULL, on_read, NULL) != ARCHIVE_OK)
		return failed(r, e);
	while ((more = next_header(r, &from, e)) > 0) {
		int bad = read_entry(from, &r->entry, e);

		if (!bad)
			bad = r->calls->entry(r->arg, &r->entry, e);
		if (!bad)
			bad = read_bytes(r, e);
		if (!bad)
			bad = r->calls->complete(r->arg, &r->entry, e);
		if (bad)
			return bad;
		++*entries;
	}
	return more;
}

int tar_read(const struct tar_calls *calls, void *arg, uint64_t *entries, struct err *e)
{
	struct reading r = {.calls = calls, .arg = arg, .archive = archive_read_new()};

	*entries = 0;
	if (!r.archive)
		return err_set(e, ENOMEM, "read the archive");
	int bad = read_all(&r, entries, e);
	archive_read_free(r.archive);
	return bad;
}
