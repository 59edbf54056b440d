// SPDX-License-Identifier: Apache-2.0
/* Serves AGENT_WATCH with inotify. Events are not kept here: a host that reads slowly loses some,
 * which is reported as AGENT_OVERFLOW. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "guest/files/file-work.h"
#include "guest/files/folder.h"
#include "guest/files/watch-folders.h"
#include "guest/files/worker-io.h"

#define PAIR_MS 20 /* the second event of a rename comes within this time, or not at all */

static struct {
	char path[AGENT_PATH_MAX + 1];
	struct watch_folders folders;
	bool ready;   /* AGENT_WATCHING was sent */
	bool quiet;   /* folders that are found are not new */
	bool crowded; /* AGENT_OVERFLOW was sent for too many folders */
	bool gone;    /* the path was removed */
	/* The first event of a rename, until the second one comes. */
	struct {
		uint32_t cookie; /* 0: there is none */
		bool folder;
		struct watched *parent;
		char name[NAME_MAX + 1];
		char path[AGENT_PATH_MAX + 1];
	} moved;
} w;

static void report(enum agent_event type, bool folder, const char *path, const char *to)
{
	struct wire out = worker_io_frame(AGENT_EVENT, 2 + 4 + strlen(path) + 4 + strlen(to));

	wire_put_u8(&out, (uint8_t)type);
	wire_put_u8(&out, folder);
	wire_put_str(&out, path, strlen(path));
	wire_put_str(&out, to, strlen(to));
}

static void report_overflow(void)
{
	report(AGENT_OVERFLOW, true, w.path, "");
}

/* --- folders -------------------------------------------------------------------------------- */

/* Searches the folder for folders to watch; reports what is in it if it is new. */
static void scan(struct watched *folder, bool is_new)
{
	char path[AGENT_PATH_MAX + 1];
	struct err e;

	if (!watch_folders_path(folder, NULL, path))
		return;
	DIR *dir = opendir(path);
	if (!dir)
		return;
	for (const struct dirent *d; (d = readdir(dir));) {
		struct stat st;

		if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0)
			continue;
		bool unknown = d->d_type == DT_UNKNOWN;
		bool is_folder =
			d->d_type == DT_DIR ||
			(unknown && fstatat(dirfd(dir), d->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
			 S_ISDIR(st.st_mode));
		if (is_new && watch_folders_path(folder, d->d_name, path))
			report(AGENT_CREATED, is_folder, path, "");
		if (is_folder && !watch_folders_add(&w.folders, folder, d->d_name) &&
		    errno == ENOSPC) {
			if (!w.ready) {
				watch_folders_full(&w.folders, w.path, &e);
				worker_io_fail(EUSERS, "%s", e.text);
			}
			if (!w.crowded)
				report_overflow();
			w.crowded = true;
		}
	}
	closedir(dir);
}

/* Scans all folders that were not scanned yet; those found on the way are appended to the list. */
static void scan_new(void)
{
	while (w.folders.recursive && w.folders.scanned < w.folders.count)
		scan(w.folders.list[w.folders.scanned++], !w.quiet);
}

static void start(void)
{
	struct err e;

	w.folders.inotify = inotify_init1(IN_CLOEXEC);
	if (w.folders.inotify < 0)
		worker_io_fail(errno == EMFILE ? EUSERS : errno, "watch %.100s: %s", w.path,
			       errno == EMFILE
				       ? "programs in the sandbox use all inotify instances; "
					 "raise the limit with sysctl -w "
					 "fs.inotify.max_user_instances=N"
				       : strerror(errno));
	if (watch_folders_start(&w.folders, w.path, &e) < 0)
		worker_io_fail_err(&e);
	w.quiet = true;
	scan_new();
	w.quiet = false;
}

/* Events were lost, maybe of folders: starts again. */
static void restart(void)
{
	struct stat st;

	report_overflow();
	watch_folders_free(&w.folders);
	close_fd(&w.folders.inotify);
	w.moved.cookie = 0;
	w.gone = stat(w.path, &st) < 0;
	if (w.gone)
		report(AGENT_REMOVED, true, w.path, "");
	else
		start();
}

/* --- events --------------------------------------------------------------------------------- */

static void drop_folder(const struct watched *parent, const char *name)
{
	struct watched *folder = watch_folders_named(&w.folders, parent, name);

	if (folder && folder->parent)
		watch_folders_drop(&w.folders, folder);
}

/* No second event came: the renamed file has left the watched folders. */
static void complete_move(void)
{
	if (!w.moved.cookie)
		return;
	w.moved.cookie = 0;
	report(AGENT_REMOVED, w.moved.folder, w.moved.path, "");
	if (w.moved.folder)
		drop_folder(w.moved.parent, w.moved.name);
}

/* Completes a move before an event with this wd. Returns the folder of the event; NULL if that has
 * left the watched folders as well. */
static struct watched *complete_move_before(int wd)
{
	complete_move();
	return watch_folders_find(&w.folders, wd);
}

static void on_moved_from(struct watched *in, const struct inotify_event *ev, const char *path)
{
	w.moved.cookie = ev->cookie;
	w.moved.folder = ev->mask & IN_ISDIR;
	w.moved.parent = in;
	strcpy(w.moved.name, ev->name);
	strcpy(w.moved.path, path);
}

static void on_appeared(struct watched *in, const struct inotify_event *ev, const char *path)
{
	bool folder = ev->mask & IN_ISDIR;

	report(AGENT_CREATED, folder, path, "");
	if (folder && w.folders.recursive) {
		if (!watch_folders_add(&w.folders, in, ev->name) && errno == ENOSPC)
			report_overflow();
		scan_new();
	}
}

static void on_moved_to(struct watched *in, const struct inotify_event *ev, const char *path)
{
	if (!w.moved.cookie || w.moved.cookie != ev->cookie) {
		in = complete_move_before(ev->wd);
		if (in)
			on_appeared(in, ev, path);
		return;
	}
	w.moved.cookie = 0;
	report(AGENT_RENAMED, w.moved.folder, w.moved.path, path);
	/* The rename has replaced an empty folder, whose watch the kernel ends. */
	struct watched *folder = watch_folders_named(&w.folders, w.moved.parent, w.moved.name);
	if (folder && w.moved.folder && watch_folders_move(folder, in, ev->name) < 0)
		worker_io_fail(ENOMEM, "no memory to watch %.100s", w.path);
}

/* Handles an event of a watched folder or file itself. */
static void on_itself(struct watched *in, uint32_t mask)
{
	if (in->parent)
		return; /* the folder that contains it reports that */
	bool folder = mask & IN_ISDIR;
	if (mask & (IN_DELETE_SELF | IN_MOVE_SELF | IN_UNMOUNT)) {
		complete_move();
		report(AGENT_REMOVED, folder, w.path, "");
		w.gone = true;
	} else if (mask & IN_MODIFY) {
		report(AGENT_WRITTEN, false, w.path, "");
	} else if (mask & IN_ATTRIB) {
		report(AGENT_ATTRIBUTES, folder, w.path, "");
	}
}

static void on_named(struct watched *in, const struct inotify_event *ev)
{
	char path[AGENT_PATH_MAX + 1];
	bool folder = ev->mask & IN_ISDIR;

	if (!watch_folders_path(in, ev->name, path)) {
		report_overflow();
		return;
	}
	if (ev->mask & IN_MOVED_TO) {
		on_moved_to(in, ev, path);
		return;
	}
	in = complete_move_before(ev->wd);
	if (!in)
		return;
	if (ev->mask & IN_MOVED_FROM)
		on_moved_from(in, ev, path);
	else if (ev->mask & IN_CREATE)
		on_appeared(in, ev, path);
	else if (ev->mask & IN_DELETE)
		report(AGENT_REMOVED, folder, path, "");
	else if (ev->mask & IN_MODIFY)
		report(AGENT_WRITTEN, folder, path, "");
	else if (ev->mask & IN_ATTRIB)
		report(AGENT_ATTRIBUTES, folder, path, "");
}

/* Returns false when the events that follow are of a former inotify. */
static bool on_event(const struct inotify_event *ev)
{
	if (ev->mask & IN_Q_OVERFLOW) {
		restart();
		return false;
	}
	struct watched *in = watch_folders_find(&w.folders, ev->wd);
	if (!in) /* an event of a folder that was dropped */
		return true;
	if (ev->mask & IN_IGNORED) {
		in = complete_move_before(ev->wd);
		if (in && in->parent)
			watch_folders_forget(&w.folders, in);
		else if (in)
			w.gone = true;
	} else if (ev->len) {
		on_named(in, ev);
	} else {
		on_itself(in, ev->mask);
	}
	return true;
}

static void read_events(void)
{
	static char buf[65536] __attribute__((aligned(8)));
	struct pollfd p = {.fd = w.folders.inotify, .events = POLLIN};

	if (poll(&p, 1, w.moved.cookie ? PAIR_MS : -1) == 0) {
		complete_move();
		return;
	}
	ssize_t n = read(w.folders.inotify, buf, sizeof(buf));
	if (n < 0 && errno == EINTR)
		return;
	if (n <= 0)
		worker_io_fail(errno, "read events of %.100s: %s", w.path, strerror(errno));
	for (const char *at = buf; at < buf + n && !w.gone;) {
		const struct inotify_event *ev = (const struct inotify_event *)at;

		at += sizeof(*ev) + ev->len;
		if (!on_event(ev))
			return;
	}
}

void serve_watch(const struct file_request *r)
{
	folder_trim(w.path, r->path);
	w.folders.recursive = r->flag;
	start();
	report(AGENT_WATCHING, false, w.path, "");
	w.ready = true;
	while (!w.gone) {
		worker_io_flush();
		read_events();
	}
	worker_io_done();
}
