// SPDX-License-Identifier: Apache-2.0
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "orchestrator/guestops/guestops.h"
#include "orchestrator/io/loop.h"
#include "test/api/fake_call.h"

#define STEP 65536

struct fake_file {
	struct list link;
	char path[AGENT_PATH_MAX + 1]; /* of an upload: its id */
	char target[AGENT_PATH_MAX + 1];
	uint32_t mode;
	uint8_t *data;
	size_t len;
};

static struct fake_file *find(struct list *files, const char *path)
{
	list_each (pos, files) {
		struct fake_file *f = container_of(pos, struct fake_file, link);

		if (strcmp(f->path, path) == 0)
			return f;
	}
	return NULL;
}

static struct fake_file *make(struct list *files, const char *path)
{
	struct fake_file *f = find(files, path);

	if (f)
		return f;
	f = calloc(1, sizeof(*f));
	snprintf(f->path, sizeof(f->path), "%s", path);
	f->mode = 0644;
	list_add_tail(files, &f->link);
	return f;
}

static void drop(struct fake_file *f)
{
	list_del(&f->link);
	free(f->data);
	free(f);
}

static void write_at(struct fake_file *f, uint64_t offset, const void *data, size_t len)
{
	if (offset + len > f->len) {
		f->data = realloc(f->data, offset + len + 1);
		memset(f->data + f->len, 0, offset + len - f->len);
		f->len = offset + len;
	}
	if (len)
		memcpy(f->data + offset, data, len);
}

void fake_files_free(struct core *c)
{
	while (!list_empty(&c->files))
		drop(container_of(c->files.next, struct fake_file, link));
	while (!list_empty(&c->uploads))
		drop(container_of(c->uploads.next, struct fake_file, link));
}

static bool under(const char *path, const char *folder)
{
	size_t len = strlen(folder);

	return strncmp(path, folder, len) == 0 && (!path[len] || path[len] == '/');
}

/* --- calls with a done_fn --- */

static void done_failed(struct core_call *call)
{
	call->done(call->arg, &call->failure);
}

static void done_run(struct core_call *call)
{
	call->done(call->arg, NULL);
	call_free(call);
}

static struct core_call *done_call(struct core *c, const char *id, core_done_fn *fn, void *arg)
{
	struct core_call *call = call_on(c, OP, id, arg);

	call->done = fn;
	call->run = done_run;
	call->on_failed = done_failed;
	return call;
}

/* Asks for the next part, and waits for it. */
static void ask_run(struct core_call *call)
{
	call->held = true;
	call->in.wants(call->arg);
}

void core_file_feed(struct core_call *call, const void *part, size_t len, bool last)
{
	write_at(make(&call->core->files, call->path), call->in_at, part, len);
	call->in_at += len;
	call->core->stats.file_bytes_in += len;
	call->held = false;
	call->run = last ? done_run : ask_run;
	loop_timer_set(call->core->loop, &call->step, 0);
}

/* Writes the data of a call to a file, from an offset on. */
static void take(struct core_call *call, struct fake_file *f, uint64_t at,
		 const struct file_data *data)
{
	if (!data->wants) {
		write_at(f, at, data->p, data->len);
		call->core->stats.file_bytes_in += data->len;
		return;
	}
	call->in = *data;
	call->in_at = at;
	snprintf(call->path, sizeof(call->path), "%s", f->path);
	call->run = ask_run;
}

static bool is_bad_path(struct core_call *call, const char *path)
{
	if (under(path, "/locked"))
		fail(call, FAIL_NOT_PERMITTED, "/locked: Permission denied");
	else if (strcmp(path, "/dir") == 0)
		fail(call, FAIL_IS_A_DIRECTORY, "/dir: Is a directory");
	return call->failing;
}

struct core_call *core_file_put(struct core *c, const char *tenant, const char *id,
				const struct file_put *put, core_done_fn *fn, void *arg)
{
	struct core_call *call = done_call(c, id, fn, arg);

	call->held = !call->failing && strcmp(call->sandbox->spec.config.template, "slow") == 0;
	if (call->failing || is_bad_path(call, put->path))
		return call;
	if (under(put->path, "/full")) {
		fail(call, FAIL_DISK_FULL, "/full: No space left on device");
		return call;
	}
	struct fake_file *f = make(&c->files, put->path);
	f->len = 0;
	f->mode = put->mode ? put->mode : f->mode;
	take(call, f, 0, &put->data);
	return call;
}

struct core_call *core_file_write(struct core *c, const char *tenant, const char *id,
				  const struct file_write *write, core_done_fn *fn, void *arg)
{
	struct core_call *call = done_call(c, id, fn, arg);

	if (call->failing || is_bad_path(call, write->path))
		return call;
	struct fake_file *f = make(&c->files, write->path);
	if (write->how == AGENT_WRITE_NEW)
		f->len = 0;
	take(call, f, write->how == AGENT_WRITE_APPEND ? f->len : write->offset, &write->data);
	return call;
}

/* Takes any bytes as an archive, except an empty one, and writes them to the file `archive` in the
 * folder. */
struct core_call *core_file_unpack(struct core *c, const char *tenant, const char *id,
				   const struct file_unpack *unpack, core_done_fn *fn, void *arg)
{
	struct core_call *call = done_call(c, id, fn, arg);
	char path[AGENT_PATH_MAX + 16];

	if (call->failing || is_bad_path(call, unpack->path))
		return call;
	if (!unpack->data.len) {
		fail(call, FAIL_BAD_ARCHIVE, "after 0 entries: the archive is broken");
		return call;
	}
	snprintf(path, sizeof(path), "%s/archive", unpack->path);
	take(call, make(&c->files, path), 0, &unpack->data);
	return call;
}

struct core_call *core_file_remove(struct core *c, const char *tenant, const char *id,
				   const char *path, bool recursive, core_done_fn *fn, void *arg)
{
	struct core_call *call = done_call(c, id, fn, arg);
	struct fake_file *f = find(&c->files, path);

	if (call->failing)
		return call;
	if (strcmp(path, "/dir") == 0 && !recursive)
		fail(call, FAIL_NOT_EMPTY, "/dir: Directory not empty");
	else if (f)
		drop(f);
	else if (strcmp(path, "/dir") != 0)
		fail(call, FAIL_NO_SUCH_FILE, "no such file");
	return call;
}

struct core_call *core_file_mkdir(struct core *c, const char *tenant, const char *id,
				  const char *path, uint32_t mode, bool parents, core_done_fn *fn,
				  void *arg)
{
	struct core_call *call = done_call(c, id, fn, arg);

	if (call->failing)
		return call;
	if (strcmp(path, "/dir") == 0 && !parents) {
		fail(call, FAIL_FILE_EXISTS, "/dir: File exists");
	} else {
		struct fake_file *f = make(&c->files, path);

		f->mode = S_IFDIR | (mode ? mode : 0755);
	}
	return call;
}

struct core_call *core_file_move(struct core *c, const char *tenant, const char *id,
				 const char *path, const char *to, bool replace, core_done_fn *fn,
				 void *arg)
{
	struct core_call *call = done_call(c, id, fn, arg);
	struct fake_file *f = find(&c->files, path), *there = find(&c->files, to);

	if (call->failing)
		return call;
	if (!f) {
		fail(call, FAIL_NO_SUCH_FILE, "no such file");
	} else if (there && !replace) {
		fail(call, FAIL_FILE_EXISTS, "it exists");
	} else {
		if (there)
			drop(there);
		snprintf(f->path, sizeof(f->path), "%s", to);
	}
	return call;
}

struct core_call *core_file_change(struct core *c, const char *tenant, const char *id,
				   const struct file_change *change, core_done_fn *fn, void *arg)
{
	struct core_call *call = done_call(c, id, fn, arg);
	struct fake_file *f = find(&c->files, change->path);

	if (call->failing)
		return call;
	if (!f)
		fail(call, FAIL_NO_SUCH_FILE, "no such file");
	else if (change->uid != AGENT_UNCHANGED)
		fail(call, FAIL_NOT_PERMITTED, "the stand-in has no owners");
	else
		f->mode = (f->mode & S_IFMT) | change->mode;
	return call;
}

/* --- calls with a sink --- */

static void sink_failed(struct core_call *call)
{
	call->files.ended(call->arg, &call->failure);
}

static void sink_end(struct core_call *call)
{
	call->files.ended(call->arg, NULL);
	call_free(call);
}

static struct core_call *sink_call(struct core *c, const char *id, const char *path,
				   const struct file_sink *sink, void *arg)
{
	struct core_call *call = call_on(c, OP, id, arg);

	call->files = *sink;
	call->on_failed = sink_failed;
	snprintf(call->path, sizeof(call->path), "%s", path);
	return call;
}

static struct file_view view_of(const char *name, uint32_t mode, uint64_t size)
{
	return (struct file_view){.name = name,
				  .name_len = strlen(name),
				  .mode = mode & S_IFMT ? mode : S_IFREG | mode,
				  .gid = 100,
				  .user = "root",
				  .user_len = 4,
				  .size = size,
				  .mtime_ns = 1700000000123456789};
}

static void stat_run(struct core_call *call)
{
	struct fake_file *f = find(&call->core->files, call->path);
	uint64_t size = 0;
	struct file_view view;

	if (f)
		view = view_of(call->path, f->mode, f->len);
	else if (sscanf(call->path, "/big/%" SCNu64, &size) == 1)
		view = view_of(call->path, 0600, size);
	else
		view = view_of(call->path, S_IFDIR | 0755, 0);
	if (call->size) { /* of a symbolic link */
		view.mode = S_IFLNK | 0777;
		view.target = "/a\xff";
		view.target_len = 3;
	}
	call->files.file(call->arg, &view);
	sink_end(call);
}

struct core_call *core_file_stat(struct core *c, const char *tenant, const char *id,
				 const char *path, bool link, const struct file_sink *sink,
				 void *arg)
{
	struct core_call *call = sink_call(c, id, path, sink, arg);

	call->run = stat_run;
	call->size = link;
	if (!call->failing && !find(&c->files, path) && strcmp(path, "/dir") != 0 &&
	    !under(path, "/big"))
		fail(call, FAIL_NO_SUCH_FILE, "no such file");
	return call;
}

static void names_run(struct core_call *call)
{
	static const struct {
		const char *name;
		uint32_t mode;
	} names[] = {
		{"a\xff", S_IFREG | 0644}, {"block", S_IFBLK | 0660}, {"char", S_IFCHR | 0666},
		{"dir", S_IFDIR | 01777},  {"fifo", S_IFIFO | 0600},  {"link", S_IFLNK | 0777},
		{"\xe2\x80\xa8", S_IFREG}, {"socket", S_IFSOCK},
	};

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		struct file_view view = view_of(names[i].name, names[i].mode, 0);

		if (S_ISLNK(names[i].mode)) {
			view.target = "to/here";
			view.target_len = 7;
		}
		view.mtime_ns = i ? view.mtime_ns : -1;
		call->files.file(call->arg, &view);
	}
	sink_end(call);
}

static void many_run(struct core_call *call)
{
	char name[32];

	for (int i = 0; i < 100 && call->sent < call->size; i++) {
		if (call->max && call->sent == call->max) { /* the limit */
			call->files.more(call->arg);
			sink_end(call);
			return;
		}
		struct file_view view;

		snprintf(name, sizeof(name), "%08" PRIu64, call->sent++);
		view = view_of(name, 0644, call->sent);
		call->files.file(call->arg, &view);
	}
	if (call->sent == call->size && under(call->path, "/worn"))
		fail(call, FAIL_AGENT_ERROR, "the disk is worn out");
	if (call->sent == call->size && !call->failing)
		sink_end(call);
	else if (!call->paused)
		loop_timer_set(call->core->loop, &call->step, 0);
}

/* Lists one name: depth, limit and after of the request. */
static void asked_run(struct core_call *call)
{
	struct file_view view = view_of(call->path, 0644, 0);

	call->files.file(call->arg, &view);
	sink_end(call);
}

struct core_call *core_file_list(struct core *c, const char *tenant, const char *id,
				 const struct file_list *list, const struct file_sink *sink,
				 void *arg)
{
	const char *path = list->path;
	struct core_call *call = sink_call(c, id, path, sink, arg);

	call->run = strcmp(path, "/names") == 0	  ? names_run
		    : strcmp(path, "/asked") == 0 ? asked_run
						  : many_run;
	call->max = list->limit;
	if (call->failing)
		return call;
	if (strcmp(path, "/asked") == 0) {
		snprintf(call->path, sizeof(call->path), "%u,%u,%s", list->depth, list->limit,
			 list->after);
		return call;
	}
	if (sscanf(path, "/many/%" SCNu64, &call->size) != 1 &&
	    sscanf(path, "/worn/%" SCNu64, &call->size) != 1 && !under(path, "/names") &&
	    !under(path, "/dir"))
		fail(call, FAIL_NOT_A_DIRECTORY, "not a directory");
	return call;
}

/* --- get --- */

static void get_run(struct core_call *call)
{
	struct fake_file *f = find(&call->core->files, call->path);
	bool short_one = under(call->path, "/short");
	static uint8_t data[STEP]; /* static: a sanitizer would delay reusing freed buffers */
	size_t len = 0;

	while (len < STEP && call->sent < call->size) {
		uint64_t at = call->max + call->sent++;

		data[len++] = f ? f->data[at] : (uint8_t)(at / 256 % 251);
	}
	if (under(call->path, "/proc") && !call->sent) {
		memcpy(data, "hello", len = 5);
		call->sent = 5;
	}
	if (short_one && call->sent > call->size / 2)
		fail(call, FAIL_FILE_CHANGED, "the file became shorter");
	else if (len)
		call->files.bytes(call->arg, data, len);
	if (call->sent >= call->size && !call->failing)
		sink_end(call);
	else if (!call->paused)
		loop_timer_set(call->core->loop, &call->step, 0);
}

static void begin_get(struct core_call *call)
{
	struct fake_file *f = find(&call->core->files, call->path);
	struct file_view view = view_of(call->path, f ? f->mode : 0600, call->size);
	uint64_t offset = call->max, length = call->sent;

	view.offset = offset;
	view.length = offset < view.size ? view.size - offset : 0;
	if (view.length > length)
		view.length = length;
	if (!view.size)
		view.length = UINT64_MAX;
	call->size = view.size ? view.length : 0;
	call->sent = 0;
	call->run = get_run;
	loop_timer_set(call->core->loop, &call->step, 0);
	call->files.file(call->arg, &view);
}

struct core_call *core_file_get(struct core *c, const char *tenant, const char *id,
				const char *path, const struct file_range *range,
				const struct file_sink *sink, void *arg)
{
	struct core_call *call = sink_call(c, id, path, sink, arg);
	struct fake_file *f = find(&c->files, path);

	call->run = begin_get;
	if (call->failing || is_bad_path(call, path))
		return call;
	if (f)
		call->size = f->len;
	else if (sscanf(path, "/big/%" SCNu64, &call->size) != 1 &&
		 sscanf(path, "/short/%" SCNu64, &call->size) != 1 && !under(path, "/proc"))
		fail(call, FAIL_NO_SUCH_FILE, "no such file");
	call->max = range->offset;
	call->sent = range->length;
	if (range->from_end)
		call->max = range->offset < call->size ? call->size - range->offset : 0;
	return call;
}

/* --- archives and watches --- */

static void pack_run(struct core_call *call)
{
	static uint8_t data[STEP];
	size_t len = 0;

	while (len < STEP && call->sent < call->size)
		data[len++] = (uint8_t)(call->sent++ / 256 % 251);
	if (len)
		call->files.bytes(call->arg, data, len);
	if (call->sent == call->size && under(call->path, "/worn"))
		fail(call, FAIL_AGENT_ERROR, "the disk is worn out");
	if (call->sent == call->size && !call->failing)
		sink_end(call);
	else if (!call->paused)
		loop_timer_set(call->core->loop, &call->step, 0);
}

struct core_call *core_file_pack(struct core *c, const char *tenant, const char *id,
				 const char *path, const struct file_sink *sink, void *arg)
{
	struct core_call *call = sink_call(c, id, path, sink, arg);

	call->run = pack_run;
	if (!call->failing && sscanf(path, "/many/%" SCNu64, &call->size) != 1 &&
	    sscanf(path, "/worn/%" SCNu64, &call->size) != 1)
		fail(call, FAIL_NOT_A_DIRECTORY, "not a directory");
	return call;
}

static void watch_failed(struct core_call *call)
{
	call->watch.ended(call->arg, &call->failure);
}

static void watch_event(struct core_call *call, enum agent_event type, const char *path,
			const char *to)
{
	const struct watch_event event = {.type = type,
					  .folder = type == AGENT_REMOVED,
					  .path = path,
					  .path_len = strlen(path),
					  .to = to,
					  .to_len = strlen(to)};

	call->watch.event(call->arg, &event);
}

static void watch_run(struct core_call *call)
{
	watch_event(call, AGENT_WATCHING, call->path, "");
	if (under(call->path, "/silent"))
		return;
	watch_event(call, AGENT_CREATED, "/w/a\xff", "");
	watch_event(call, AGENT_WRITTEN, "/w/a", "");
	watch_event(call, AGENT_RENAMED, "/w/a", "/w/b\xe2\x80\xa8");
	watch_event(call, AGENT_ATTRIBUTES, "/w/b", "");
	watch_event(call, AGENT_OVERFLOW, "/w", "");
	watch_event(call, AGENT_REMOVED, "/w", "");
	if (under(call->path, "/worn")) {
		fail(call, FAIL_AGENT_LOST, "the agent is gone");
		loop_timer_set(call->core->loop, &call->step, 0);
		return;
	}
	call->watch.ended(call->arg, NULL);
	call_free(call);
}

struct core_call *core_file_watch(struct core *c, const char *tenant, const char *id,
				  const char *path, bool recursive, const struct watch_sink *sink,
				  void *arg)
{
	struct core_call *call = call_on(c, OP, id, arg);

	call->watch = *sink;
	call->run = watch_run;
	call->on_failed = watch_failed;
	snprintf(call->path, sizeof(call->path), "%s", path);
	if (!call->failing && under(path, "/none"))
		fail(call, FAIL_NO_SUCH_FILE, "no such file");
	if (!call->failing && under(path, "/old"))
		fail(call, FAIL_TOO_OLD, "create a new sandbox");
	return call;
}

/* --- uploads --- */

static void id_failed(struct core_call *call)
{
	call->id_fn(call->arg, NULL, &call->failure);
}

static void id_run(struct core_call *call)
{
	call->id_fn(call->arg, call->path, NULL);
	call_free(call);
}

struct core_call *core_upload_begin(struct core *c, const char *tenant, const char *id,
				    const char *path, uint32_t mode, core_id_fn *fn, void *arg)
{
	struct core_call *call = call_on(c, OP, id, arg);

	call->id_fn = fn;
	call->run = id_run;
	call->on_failed = id_failed;
	if (call->failing || is_bad_path(call, path))
		return call;
	snprintf(call->path, sizeof(call->path), "upl_%032" PRIx64, ++c->next_id);
	struct fake_file *f = make(&c->uploads, call->path);
	snprintf(f->target, sizeof(f->target), "%s", path);
	f->mode = mode ? mode : 0644;
	return call;
}

static struct core_call *upload_call(struct core *c, const char *id, const char *upload,
				     struct fake_file **f, core_done_fn *fn, void *arg)
{
	struct core_call *call = done_call(c, id, fn, arg);

	*f = call->failing ? NULL : find(&c->uploads, upload);
	if (!call->failing && !*f)
		fail(call, FAIL_NO_SUCH_UPLOAD, "there is no such upload");
	return call;
}

struct core_call *core_upload_part(struct core *c, const char *tenant, const char *id,
				   const char *upload, const struct upload_part *part,
				   core_done_fn *fn, void *arg)
{
	struct fake_file *f;
	struct core_call *call = upload_call(c, id, upload, &f, fn, arg);

	if (f)
		write_at(f, part->offset, part->data, part->len);
	return call;
}

/* Accepts every hash whose first byte is 0, and no other. */
struct core_call *core_upload_commit(struct core *c, const char *tenant, const char *id,
				     const char *upload, uint64_t size, const uint8_t *hash,
				     core_done_fn *fn, void *arg)
{
	struct fake_file *f, *to;
	struct core_call *call = upload_call(c, id, upload, &f, fn, arg);

	if (!f)
		return call;
	if (size != f->len || (hash && hash[0])) {
		fail(call, FAIL_CHECKSUM_MISMATCH, "size or checksum is wrong");
		return call;
	}
	to = make(&c->files, f->target);
	to->len = 0;
	write_at(to, 0, f->data, f->len);
	to->mode = f->mode;
	drop(f);
	return call;
}

struct core_call *core_upload_abort(struct core *c, const char *tenant, const char *id,
				    const char *upload, core_done_fn *fn, void *arg)
{
	struct core_call *call = done_call(c, id, fn, arg);
	struct fake_file *f = find(&c->uploads, upload);

	if (f && !call->failing)
		drop(f);
	return call;
}
