// SPDX-License-Identifier: Apache-2.0
/* Routes for files of a sandbox. A request's body is written to the file unchanged, and a file is
 * sent as the guest returns it. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/log.h"
#include "orchestrator/api/handler.h"
#include "orchestrator/guestops/guestops.h"
#include "orchestrator/json/query.h"

#define BYTES_TYPE  "application/octet-stream"
#define ENTRIES_MAX 100000 /* maximum of entries in a list of more than one folder */

/* --- query parameters ----------------------------------------------------------------------- */

static bool ask_path_of(struct request *r, const char *name, char path[static AGENT_PATH_MAX + 1])
{
	h2o_iovec_t url = r->req->input.path;
	struct err e;

	if (query_path(url.base, url.len, name, path, AGENT_PATH_MAX + 1, &e) >= 0)
		return true;
	answer_error(r, 400, "bad_path", "%s", e.text);
	return false;
}

bool ask_path(struct request *r, char path[static AGENT_PATH_MAX + 1])
{
	return ask_path_of(r, "path", path);
}

static bool ask_mode(struct request *r, uint32_t *mode)
{
	h2o_iovec_t url = r->req->input.path;
	struct err e;

	return query_mode(url.base, url.len, mode, &e) >= 0 || bad_request(r, "%s", e.text);
}

bool ask_flag(struct request *r, const char *name, bool *flag)
{
	h2o_iovec_t url = r->req->input.path;
	struct err e;

	return query_flag(url.base, url.len, name, flag, &e) >= 0 || bad_request(r, "%s", e.text);
}

bool ask_number(struct request *r, const char *name, uint64_t least, uint64_t *n)
{
	h2o_iovec_t url = r->req->input.path;
	struct err e;

	return query_number(url.base, url.len, name, least, n, &e) >= 0 ||
	       bad_request(r, "%s", e.text);
}

/* --- put, remove, mkdir, move, change ------------------------------------------------------- */

void file_do(struct request *r, const struct agent_file_request *request,
	     const struct file_data *data)
{
	request_ref(r);
	r->op = service_file_do(r->service, r->tenant, r->id, request, data, request_done, r);
}

/* Makes *put a request to write in place, if the query asks for one. */
static bool ask_in_place(struct request *r, struct agent_file_request *put)
{
	uint64_t offset = UINT64_MAX;
	bool in_place = false, append = false;

	if (!ask_flag(r, "in_place", &in_place) || !ask_flag(r, "append", &append) ||
	    !ask_number(r, "offset", 0, &offset))
		return false;
	if (append && offset != UINT64_MAX)
		return bad_request(r, "offset cannot be combined with append: give one of them");
	if (in_place || append || offset != UINT64_MAX)
		put->type = AGENT_WRITE;
	put->how = append		  ? AGENT_WRITE_APPEND
		   : offset != UINT64_MAX ? AGENT_WRITE_AT
					  : AGENT_WRITE_NEW;
	put->offset = offset == UINT64_MAX ? 0 : offset;
	return true;
}

void serve_put(struct request *r)
{
	char path[AGENT_PATH_MAX + 1];
	struct agent_file_request put = {.type = AGENT_PUT, .path = path};

	if (!ask_path(r, path) || !ask_mode(r, &put.mode) || !ask_in_place(r, &put))
		return;
	struct file_data data = body_data(r);
	file_do(r, &put, &data);
}

void serve_remove(struct request *r)
{
	char path[AGENT_PATH_MAX + 1];
	struct agent_file_request remove = {.type = AGENT_REMOVE, .path = path};

	if (ask_path(r, path) && ask_flag(r, "recursive", &remove.flag))
		file_do(r, &remove, NULL);
}

void serve_mkdir(struct request *r)
{
	char path[AGENT_PATH_MAX + 1];
	struct agent_file_request mkdir = {.type = AGENT_MKDIR, .path = path};

	if (ask_path(r, path) && ask_mode(r, &mkdir.mode) && ask_flag(r, "parents", &mkdir.flag))
		file_do(r, &mkdir, NULL);
}

void serve_move(struct request *r)
{
	char path[AGENT_PATH_MAX + 1], to[AGENT_PATH_MAX + 1];
	struct agent_file_request move = {.type = AGENT_MOVE, .path = path, .to = to};

	if (ask_path(r, path) && ask_path_of(r, "to", to) && ask_flag(r, "replace", &move.flag))
		file_do(r, &move, NULL);
}

static bool ask_owner(struct request *r, const char *name, uint32_t *id)
{
	uint64_t n = UINT64_MAX;

	if (!ask_number(r, name, 0, &n))
		return false;
	if (n == UINT64_MAX)
		return true;
	if (n >= AGENT_UNCHANGED)
		return bad_request(r, "%s must be a number up to %u", name, AGENT_UNCHANGED - 1);
	*id = (uint32_t)n;
	return true;
}

void serve_file_change(struct request *r)
{
	char path[AGENT_PATH_MAX + 1];
	struct agent_file_request change = {.type = AGENT_CHANGE,
					    .path = path,
					    .mode = AGENT_UNCHANGED,
					    .uid = AGENT_UNCHANGED,
					    .gid = AGENT_UNCHANGED};

	if (!ask_path(r, path) || !ask_mode(r, &change.mode) || !ask_owner(r, "uid", &change.uid) ||
	    !ask_owner(r, "gid", &change.gid) || !ask_flag(r, "recursive", &change.flag))
		return;
	if ((change.mode & change.uid & change.gid) == AGENT_UNCHANGED) {
		answer_error(r, 400, "bad_request",
			     "the query changes nothing: add mode, uid or gid");
		return;
	}
	file_do(r, &change, NULL);
}

/* --- attributes of a file ------------------------------------------------------------------- */

static const char *type_of(uint32_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFREG:
		return "file";
	case S_IFDIR:
		return "directory";
	case S_IFLNK:
		return "symlink";
	case S_IFIFO:
		return "fifo";
	case S_IFSOCK:
		return "socket";
	case S_IFBLK:
		return "block";
	case S_IFCHR:
		return "char";
	default:
		return "unknown";
	}
}

void add_name(struct text *t, const char *key, const char *name, size_t len)
{
	text_printf(t, "\"%s\":", key);
	if (json_string(t, name, len))
		return;
	text_printf(t, ",\"%s_b64\":", key);
	json_base64(t, (const uint8_t *)name, len);
}

/* Adds ,"KEY":"NAME", with the number as the name of an owner that has none. */
static void add_owner(struct text *t, const char *key, const char *name, size_t len, uint32_t id)
{
	char number[16];

	if (!len) {
		snprintf(number, sizeof(number), "%u", id);
		name = number;
		len = strlen(number);
	}
	text_printf(t, ",\"%s\":", key);
	json_string(t, name, len);
}

static void add_seconds(struct text *t, int64_t ns)
{
	uint64_t size = ns < 0 ? 0 - (uint64_t)ns : (uint64_t)ns;

	text_printf(t, "%s%" PRIu64 ".%09" PRIu64, ns < 0 ? "-" : "", size / 1000000000,
		    size % 1000000000);
}

static void add_file(struct text *t, const struct file_view *f)
{
	text_putc(t, '{');
	add_name(t, "name", f->name, f->name_len);
	text_printf(t,
		    ",\"type\":\"%s\",\"size\":%" PRIu64 ",\"mode\":\"%04o\",\"uid\":%u,"
		    "\"gid\":%u",
		    type_of(f->mode), f->size, f->mode & 07777, f->uid, f->gid);
	add_owner(t, "user", f->user, f->user_len, f->uid);
	add_owner(t, "group", f->group, f->group_len, f->gid);
	text_puts(t, ",\"mtime\":");
	add_seconds(t, f->mtime_ns);
	if (S_ISLNK(f->mode)) {
		text_putc(t, ',');
		add_name(t, "target", f->target, f->target_len);
	}
	text_putc(t, '}');
}

static void add_headers(struct request *r, const struct file_view *f)
{
	time_t seconds = (time_t)(f->mtime_ns / 1000000000);
	char text[64];
	struct tm tm;

	snprintf(text, sizeof(text), "%04o", f->mode & 07777);
	answer_header(r, "ramet-mode", text);
	answer_header(r, "accept-ranges", "bytes");
	if (f->mtime_ns >= 0 && gmtime_r(&seconds, &tm) &&
	    strftime(text, sizeof(text), "%a, %d %b %Y %H:%M:%S GMT", &tm))
		answer_header(r, "last-modified", text);
}

/* --- stat ----------------------------------------------------------------------------------- */

static void on_stat(void *arg, const struct file_view *f)
{
	struct request *r = arg;

	add_file(&r->out, f);
	text_putc(&r->out, '\n');
}

static const struct file_sink stat_sink = {.file = on_stat, .ended = request_done_200};

void serve_stat(struct request *r)
{
	char path[AGENT_PATH_MAX + 1];
	bool follow = true;

	if (!ask_path(r, path) || !ask_flag(r, "follow", &follow))
		return;
	request_ref(r);
	r->op = service_file_stat(r->service, r->tenant, r->id, path, !follow, &stat_sink, r);
}

/* Cuts off an answer and logs the reason, which cannot be sent to the client after the head of the
 * answer. */
static void break_off(struct request *r, const struct failure *f)
{
	log_warn("cut off an answer with files of sandbox %s: %s", r->id, f->text);
	stream_end(r, true);
}

/* --- list: a long one is streamed ----------------------------------------------------------- */

static void on_entry(void *arg, const struct file_view *f)
{
	struct request *r = arg;
	bool first = !r->started && !r->out.len;

	if (request_is_head(r))
		return;
	text_puts(&r->out, first ? "{\"entries\":[" : ",");
	add_file(&r->out, f);
	if (!r->started && r->out.len < STREAM_PAUSE_SIZE)
		return;
	if (!r->started)
		answer_begin(r, 200, "application/json", SIZE_MAX);
	stream_touch(r);
	stream_hold(r);
}

static void on_more(void *arg)
{
	struct request *r = arg;

	r->mark = true; /* there are more entries than the limit */
}

static void end_list(struct request *r)
{
	if (!r->started && !r->out.len)
		text_puts(&r->out, "{\"entries\":[");
	text_puts(&r->out, r->mark ? "],\"truncated\":true}\n" : "]}\n");
	if (r->started)
		stream_end(r, false);
	else
		answer(r, 200, "application/json");
}

static void on_list_end(void *arg, const struct failure *f)
{
	struct request *r = arg;

	if (!request_called(r))
		return;
	if (f && r->started)
		break_off(r, f);
	else if (f)
		answer_failure(r, f);
	else if (request_is_head(r))
		answer_head(r, 200, "application/json", SIZE_MAX);
	else
		end_list(r);
}

static const struct file_sink list_sink = {.file = on_entry, .more = on_more, .ended = on_list_end};

static bool ask_depth(struct request *r, uint32_t *depth)
{
	uint64_t n = 1;

	if (!ask_number(r, "depth", 0, &n))
		return false;
	if (n < 1 || n > AGENT_DEPTH_MAX)
		return bad_request(r, "depth must be a whole number from 1 to %d", AGENT_DEPTH_MAX);
	*depth = (uint32_t)n;
	return true;
}

/* Without a limit, a list of one folder is sent whole, and others up to ENTRIES_MAX entries. */
static bool ask_entries(struct request *r, uint32_t depth, uint32_t *limit)
{
	uint64_t n = depth > 1 ? ENTRIES_MAX : 0;

	if (!ask_number(r, "limit", 1, &n))
		return false;
	*limit = n < ENTRIES_MAX ? (uint32_t)n : ENTRIES_MAX;
	return true;
}

static bool ask_after(struct request *r, char after[static AGENT_NAME_MAX + 1])
{
	h2o_iovec_t url = r->req->input.path;
	struct err e;
	int len = query_text(url.base, url.len, "after", after, AGENT_NAME_MAX + 1, &e);

	if (len == -ENOENT) {
		after[0] = '\0';
		return true;
	}
	if (len < 0)
		return bad_request(r, "%s", e.text);
	if (after[0] != '/')
		return true;
	return bad_request(
		r,
		"after must be a name from the list, which is relative to the folder, not "
		"\"%.100s\"",
		after);
}

void serve_files(struct request *r)
{
	char path[AGENT_PATH_MAX + 1], after[AGENT_NAME_MAX + 1];
	struct file_list list = {.path = path, .after = after};

	if (!ask_path(r, path) || !ask_depth(r, &list.depth) ||
	    !ask_entries(r, list.depth, &list.limit) || !ask_after(r, after) ||
	    !answer_may_be_long(r))
		return;
	request_ref(r);
	r->op = service_file_list(r->service, r->tenant, r->id, &list, &list_sink, r);
}

/* --- get ------------------------------------------------------------------------------------ */

static void refuse_range(struct request *r, const struct file_view *f)
{
	char text[48];

	request_leave_call(r);
	snprintf(text, sizeof(text), "bytes */%" PRIu64, f->size);
	answer_header(r, "content-range", text);
	answer_error(r, 416, "bad_range",
		     "the range begins after the end of the file, which has %" PRIu64 " bytes",
		     f->size);
}

static void on_file(void *arg, const struct file_view *f)
{
	struct request *r = arg;
	char text[80];

	if (r->mark && f->offset >= f->size) {
		refuse_range(r, f);
		return;
	}
	add_headers(r, f);
	if (r->mark) { /* a range of the file */
		snprintf(text, sizeof(text), "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64, f->offset,
			 f->offset + f->length - 1, f->size);
		answer_header(r, "content-range", text);
	}
	/* The length is unknown for files of size 0, since those in /proc have contents: their
	 * answer begins with the first bytes. */
	if (f->length != UINT64_MAX)
		answer_begin(r, r->mark ? 206 : 200, BYTES_TYPE, f->length);
}

void stream_file(struct request *r, const char *type, const void *data, size_t len)
{
	if (!r->started)
		answer_begin(r, 200, type, SIZE_MAX);
	text_add(&r->out, data, len);
	stream_touch(r);
	stream_hold(r);
}

void end_file(struct request *r, const char *type, const struct failure *f)
{
	if (!request_called(r))
		return;
	if (f && r->started)
		break_off(r, f);
	else if (f)
		answer_failure(r, f);
	else if (r->started)
		stream_end(r, false);
	else
		answer(r, 200, type);
}

static void on_bytes(void *arg, const void *data, size_t len)
{
	stream_file(arg, BYTES_TYPE, data, len);
}

static void on_get_end(void *arg, const struct failure *f)
{
	end_file(arg, BYTES_TYPE, f);
}

static const struct file_sink get_sink = {.file = on_file, .bytes = on_bytes, .ended = on_get_end};

static struct file_range asked_range(struct request *r)
{
	const h2o_iovec_t *range = request_header(r, "range");
	struct byte_range b;

	/* A request with If-Range gets the whole file, as files have no validators (RFC 9110
	 * 13.1.5). */
	r->mark =
		range && !request_header(r, "if-range") && range_read(range->base, range->len, &b);
	if (!r->mark) /* the whole file */
		return (struct file_range){.length = UINT64_MAX};
	return (struct file_range){.offset = b.offset, .length = b.length, .from_end = b.from_end};
}

/* --- HEAD ----------------------------------------------------------------------------------- */

static void on_head(void *arg, const struct file_view *f)
{
	struct request *r = arg;

	if (S_ISREG(f->mode)) {
		add_headers(r, f);
		answer_head(r, 200, BYTES_TYPE, f->size);
	} else {
		answer_error(r, 409, S_ISDIR(f->mode) ? "is_a_directory" : "not_a_file",
			     "the path is a %s, not a file", type_of(f->mode));
	}
}

void end_file_head(void *arg, const struct failure *f)
{
	struct request *r = arg;

	if (request_called(r) && f && !r->started)
		answer_failure(r, f);
}

static const struct file_sink head_sink = {.file = on_head, .ended = end_file_head};

void serve_get(struct request *r)
{
	char path[AGENT_PATH_MAX + 1];

	if (!ask_path(r, path))
		return;
	struct file_range range = asked_range(r);
	request_ref(r);
	if (request_is_head(r))
		r->op = service_file_stat(r->service, r->tenant, r->id, path, false, &head_sink, r);
	else
		r->op = service_file_get(r->service, r->tenant, r->id, path, &range, &get_sink, r);
}
