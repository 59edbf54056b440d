// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/warden/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/file.h"
#include "base/text-file.h"
#include "base/num.h"
#include "base/word.h"
#include "proto/warden.h"

#define CPU_PERIOD_US	100000
#define TEXT_MAX	512
#define BFQ_WEIGHT_MOST 1000
#define STAT_MAX	8192 /* memory.stat has some 60 lines */

const char *const cgroup_controllers[] = {"memory", "cpu", "pids", NULL};

/* --- small files ----------------------------------------------------------------------------- */

static void file_of(char path[static TEXT_MAX], const char *name, const char *file)
{
	snprintf(path, TEXT_MAX, "%s/%s", name, file);
}

static int open_dir(int dir, const char *name)
{
	return openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* --- locating BASE --------------------------------------------------------------------------- */

bool cgroup_mount_line(const char *line, char root[static CGROUP_PATH_MAX],
		       char point[static CGROUP_PATH_MAX])
{
	const char *type = strstr(line, " - ");

	if (!type || strncmp(type, " - cgroup2 ", 11) != 0)
		return false;
	_Static_assert(CGROUP_PATH_MAX == 512, "widths in the format below");
	return sscanf(line, "%*d %*d %*s %511s %511s", root, point) == 2;
}

bool cgroup_own_line(const char *line, char path[static CGROUP_PATH_MAX])
{
	size_t len = strcspn(line, "\n");

	if (strncmp(line, "0::/", 4) != 0 || len - 3 >= CGROUP_PATH_MAX)
		return false;
	memcpy(path, line + 3, len - 3);
	path[len - 3] = '\0';
	return true;
}

bool cgroup_find_mount(FILE *mountinfo, char root[static CGROUP_PATH_MAX],
		       char point[static CGROUP_PATH_MAX])
{
	char each_root[CGROUP_PATH_MAX], each_point[CGROUP_PATH_MAX];
	scoped_free char *line = NULL;
	size_t size = 0;

	root[0] = point[0] = '\0';
	while (getline(&line, &size, mountinfo) > 0) {
		if (!cgroup_mount_line(line, each_root, each_point) ||
		    (root[0] && strlen(each_root) >= strlen(root)))
			continue;
		snprintf(root, CGROUP_PATH_MAX, "%s", each_root);
		snprintf(point, CGROUP_PATH_MAX, "%s", each_point);
	}
	return root[0];
}

static int find_mount(char root[static CGROUP_PATH_MAX], char point[static CGROUP_PATH_MAX],
		      struct err *e)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");

	if (!f)
		return err_set(e, errno, "open /proc/self/mountinfo");
	bool found = cgroup_find_mount(f, root, point);
	fclose(f);
	if (!found)
		return err_say(e, ENOENT,
			       "cgroup v2 is not mounted; rametd limits its VMs with it (boot with"
			       " systemd.unified_cgroup_hierarchy=1, or `mount -t cgroup2 cgroup2"
			       " /sys/fs/cgroup`)");
	return 0;
}

static int find_own(char path[static CGROUP_PATH_MAX], struct err *e)
{
	FILE *f = fopen("/proc/self/cgroup", "re");
	scoped_free char *line = NULL;
	size_t size = 0;
	bool found = false;

	if (!f)
		return err_set(e, errno, "open /proc/self/cgroup");
	while (!found && getline(&line, &size, f) > 0)
		found = cgroup_own_line(line, path);
	fclose(f);
	if (!found || strncmp(path, "/..", 3) == 0)
		return err_say(e, ENOENT,
			       "/proc/self/cgroup names no visible cgroup v2: is /sys/fs/cgroup "
			       "mounted in this namespace?");
	return 0;
}

/* Returns the part of `path` below `root`, or `path` if it is not below. A mount may show only a
 * subtree of the hierarchy. */
static const char *below(const char *path, const char *root)
{
	size_t len = strlen(root);

	if (strcmp(root, "/") == 0 || strncmp(path, root, len) != 0)
		return path;
	return path[len] == '/' || path[len] == '\0' ? path + len : path;
}

/* Shortens `own`, the path of this process's cgroup, from BASE/ramet/warden to BASE: a previous
 * warden may have moved the process there. */
static void leave_leaf(char *own)
{
	const char leaf[] = "/ramet/warden";
	size_t len = strlen(own), tail = sizeof(leaf) - 1;

	if (len >= tail && strcmp(own + len - tail, leaf) == 0)
		strcpy(own + len - tail, len == tail ? "/" : "");
}

int cgroup_find_base(char path[static CGROUP_PATH_MAX], char point[static CGROUP_PATH_MAX],
		     const char *wanted, struct err *e)
{
	char root[CGROUP_PATH_MAX], own[CGROUP_PATH_MAX];

	int r = find_mount(root, point, e);
	if (r < 0)
		return r;
	if (!wanted[0]) {
		r = find_own(own, e);
		if (r < 0)
			return r;
		leave_leaf(own);
		wanted = below(own, root);
	}
	int n = snprintf(path, CGROUP_PATH_MAX, "%s%s", point, wanted);
	if (n < 0 || n >= CGROUP_PATH_MAX)
		return err_say(e, ENAMETOOLONG, "the cgroup path %.80s... is too long", path);
	return 0;
}

/* --- controllers ----------------------------------------------------------------------------- */

/* Fills *e with the cause: the controller was not delegated, or the whole hierarchy lacks it. */
static int explain_missing(const struct cgroup_tree *t, const char *point, const char *controller,
			   struct err *e)
{
	scoped_fd int top = open_dir(AT_FDCWD, point);
	char text[TEXT_MAX];

	if (top >= 0 && text_file_read(top, "cgroup.controllers", text, sizeof(text)) > 0 &&
	    has_word(text, controller))
		return err_say(e, ENOTSUP,
			       "cgroup %s was not given the %s controller (under systemd the unit"
			       " needs Delegate=yes)",
			       t->path, controller);
	return err_say(
		e, ENOTSUP,
		"cgroup v2 at %s has no %s controller: cgroup v1 holds it or the kernel lacks"
		" it (boot with systemd.unified_cgroup_hierarchy=1)",
		point, controller);
}

static int check_controllers(const struct cgroup_tree *t, const char *point, struct err *e)
{
	char text[TEXT_MAX];

	int r = text_file_read(t->base, "cgroup.controllers", text, sizeof(text));
	if (r < 0)
		return err_set(e, -r, "read cgroup.controllers of %s", t->path);
	for (size_t i = 0; t->enabled[i]; i++)
		if (!has_word(text, t->enabled[i]))
			return explain_missing(t, point, t->enabled[i], e);
	return 0;
}

/* Enables ('+') or disables ('-') a controller for the children of `dir`, if that is not done yet.
 */
static int switch_one(int dir, const char *controller, char sign)
{
	char now[TEXT_MAX], text[32];

	int r = text_file_read(dir, "cgroup.subtree_control", now, sizeof(now));
	if (r < 0 || has_word(now, controller) == (sign == '+'))
		return r < 0 ? r : 0;
	snprintf(text, sizeof(text), "%c%s", sign, controller);
	return text_file_write(dir, "cgroup.subtree_control", text);
}

static int switch_controllers(const struct cgroup_tree *t, int dir, char sign)
{
	int r = 0;

	for (size_t i = 0; r == 0 && t->enabled[i]; i++)
		r = switch_one(dir, t->enabled[i], sign);
	return r;
}

/* Enables the io controller if it was delegated; it is optional. */
static void enable_io(struct cgroup_tree *t)
{
	if (t->base_is_named) {
		scoped_fd int parent = open_dir(t->base, "..");

		switch_one(parent, "io", '+');
	}
	t->io = switch_one(t->base, "io", '+') == 0 && switch_one(t->top, "io", '+') == 0;
}

static void disable_io(const struct cgroup_tree *t)
{
	switch_one(t->top, "io", '-');
	if (!t->base_is_root)
		switch_one(t->base, "io", '-');
}

/* Gives the warden, which every VM waits for, the highest CPU weight. */
static int favour_warden(const struct cgroup_tree *t, struct err *e)
{
	const struct cgroup_limits first = {.weight = CGROUP_WEIGHT_MOST,
					    .reclaim = CGROUP_RECLAIM_LAST};

	return cgroup_limit(t, "warden", &first, e);
}

static int enable_controllers(const struct cgroup_tree *t, struct err *e)
{
	int r = switch_controllers(t, t->base, '+');

	if (r == -EBUSY)
		return err_say(
			e, EBUSY,
			"cgroup %s holds other processes, so no child cgroups can be used: start"
			" rametd in its own cgroup (systemd-run -p Delegate=yes), or set"
			" `cgroup`",
			t->path);
	if (r == 0)
		r = switch_controllers(t, t->top, '+');
	if (r < 0)
		return err_set(e, -r, "enable controllers in cgroup %s", t->path);
	return 0;
}

/* --- the tree -------------------------------------------------------------------------------- */

/* Moves this process and t->with into a cgroup. Writing "0" moves the writing process. */
static int enter(const struct cgroup_tree *t, int dir)
{
	char pid[16];

	int r = text_file_write(dir, "cgroup.procs", "0");
	if (r < 0 || !t->with)
		return r;
	snprintf(pid, sizeof(pid), "%d", t->with);
	return text_file_write(dir, "cgroup.procs", pid);
}

static int make_leaves(struct cgroup_tree *t, struct err *e)
{
	if (mkdirat(t->base, "ramet", 0755) < 0 && errno != EEXIST)
		return err_set(e, errno, "create cgroup %s/ramet", t->path);
	t->top = open_dir(t->base, "ramet");
	if (t->top < 0 || fchmod(t->top, 0755) < 0)
		return err_set(e, errno, "open cgroup %s/ramet", t->path);
	/* The lock is held until the process ends. */
	if (flock(t->top, LOCK_EX | LOCK_NB) < 0) {
		close_fd(&t->top); /* so that cgroup_tree_close leaves it alone */
		return err_say(e, EEXIST, "another rametd uses cgroup %s", t->path);
	}
	scoped_fd int service = cgroup_make(t, "service", NULL, e);
	if (service < 0)
		return service;
	scoped_fd int warden = cgroup_make(t, "warden", NULL, e);
	if (warden < 0)
		return warden;
	int r = enter(t, warden);
	return r < 0 ? err_set(e, -r, "enter cgroup %s/ramet/warden", t->path) : 0;
}

static int open_base(struct cgroup_tree *t, const char *wanted, struct err *e)
{
	char point[CGROUP_PATH_MAX];

	int r = cgroup_find_base(t->path, point, wanted, e);
	if (r < 0)
		return r;
	t->base_is_named = wanted[0];
	t->base_is_made = mkdir(t->path, 0755) == 0;
	t->base = open_dir(AT_FDCWD, t->path);
	if (t->base < 0)
		return err_set(e, errno, "open cgroup %s", t->path);
	if (t->base_is_made) {
		scoped_fd int parent = open_dir(t->base, "..");

		switch_controllers(t, parent, '+'); /* check_controllers reports failures */
	}
	/* Only the root cgroup lacks cgroup.type. */
	t->base_is_root = faccessat(t->base, "cgroup.type", F_OK, 0) < 0;
	return check_controllers(t, point, e);
}

int cgroup_tree_open(struct cgroup_tree *t, const char *wanted, pid_t with,
		     const char *const *controllers, struct err *e)
{
	*t = (struct cgroup_tree){.base = -1, .top = -1, .enabled = controllers};
	int r = open_base(t, wanted, e);

	if (!wanted[0] && !t->base_is_root)
		t->with = with;
	if (r == 0)
		r = make_leaves(t, e);
	if (r == 0)
		r = enable_controllers(t, e);
	if (r == 0)
		enable_io(t);
	if (r == 0)
		r = favour_warden(t, e);
	if (r < 0)
		cgroup_tree_close(t, true);
	return r;
}

static void note_vm(void *arg, uint32_t slot)
{
	*(bool *)arg = true;
}

/*
 * Moves this process back to BASE and removes the tree. A cgroup other than the root may hold
 * processes only while no controller is enabled for its children, so the controllers enabled there
 * are disabled first. Does nothing while a VM remains, because disabling them would remove its
 * limits.
 */
static void leave(struct cgroup_tree *t)
{
	bool has_vm = false;

	if (cgroup_each_vm(t, note_vm, &has_vm, NULL) < 0 || has_vm)
		return;
	disable_io(t);
	switch_controllers(t, t->top, '-');
	if (!t->base_is_root)
		switch_controllers(t, t->base, '-');
	if (enter(t, t->base) < 0)
		return;
	unlinkat(t->top, "warden", AT_REMOVEDIR);
	unlinkat(t->top, "service", AT_REMOVEDIR);
	unlinkat(t->top, "notify", AT_REMOVEDIR);
	unlinkat(t->base, "ramet", AT_REMOVEDIR);
}

/* Removes a BASE that this process created, after moving itself to the parent cgroup. */
static void remove_base(struct cgroup_tree *t)
{
	if (rmdir(t->path) == 0)
		return;
	scoped_fd int parent = open_dir(t->base, "..");
	if (parent >= 0 && enter(t, parent) == 0)
		rmdir(t->path);
}

void cgroup_tree_close(struct cgroup_tree *t, bool remove)
{
	if (remove && t->top >= 0)
		leave(t);
	if (remove && t->base_is_made)
		remove_base(t);
	close_fd(&t->top);
	close_fd(&t->base);
}

/* --- one cgroup ------------------------------------------------------------------------------ */

static bool uses(const struct cgroup_tree *t, const char *controller)
{
	for (size_t i = 0; t->enabled[i]; i++)
		if (strcmp(t->enabled[i], controller) == 0)
			return true;
	return false;
}

static int set_limit(int dir, const char *file, const char *text, struct err *e)
{
	int r = text_file_write(dir, file, text);

	return r < 0 ? err_set(e, -r, "write %s to %s", text, file) : 0;
}

static int set_number(int dir, const char *file, uint64_t number, struct err *e)
{
	char text[32];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)number);
	return set_limit(dir, file, text, e);
}

static int set_memory(int dir, uint64_t bytes, struct err *e)
{
	int r = set_number(dir, "memory.max", bytes, e);
	if (r < 0)
		return r;
	/* An OOM kill ends all processes of the VM, which cannot work without one of them. */
	r = set_limit(dir, "memory.oom.group", "1", e);
	if (r < 0)
		return r;
	/* A kernel without swap has no such file. */
	r = text_file_write(dir, "memory.swap.max", "0");
	return r < 0 && r != -ENOENT ? err_set(e, -r, "write 0 to memory.swap.max") : 0;
}

/*
 * Sets the share of CPUs and disks. CGROUP_WEIGHT_IDLE makes the cgroup idle (cpu.idle): it yields
 * as soon as another has work, which a small weight does not achieve. The CPU weight of an idle
 * cgroup cannot be set. Missing kernel or disk support is not an error: I/O weights need the io
 * controller and an I/O scheduler that implements them. BFQ has a file of its own.
 */
static int set_weight(const struct cgroup_tree *t, int dir, uint32_t weight, struct err *e)
{
	const char *idle = weight == CGROUP_WEIGHT_IDLE ? "1" : "0";
	int r = text_file_write(dir, "cpu.idle", idle);

	set_number(dir, "io.weight", weight, NULL);
	set_number(dir, "io.bfq.weight", min_u64(weight, BFQ_WEIGHT_MOST), NULL);
	if (!uses(t, "cpu") || (r == 0 && *idle == '1'))
		return 0;
	return set_number(dir, "cpu.weight", weight, e);
}

static int set_limits(const struct cgroup_tree *t, int dir, const struct cgroup_limits *l,
		      struct err *e)
{
	char text[64];
	int r = 0;

	if (uses(t, "memory") && l->memory_max)
		r = set_memory(dir, l->memory_max, e);
	/* The limit of BASE/ramet causes the reclaim, so each cgroup below it is protected by its
	 * memory.low. */
	if (r == 0 && uses(t, "memory") && l->reclaim)
		r = set_limit(dir, "memory.low", l->reclaim == CGROUP_RECLAIM_LAST ? "max" : "0",
			      e);
	if (r == 0 && uses(t, "cpu") && l->cpu_max_pct) {
		snprintf(text, sizeof(text), "%llu %u",
			 (unsigned long long)l->cpu_max_pct * CPU_PERIOD_US / 100, CPU_PERIOD_US);
		r = set_limit(dir, "cpu.max", text, e);
	}
	if (r == 0 && l->weight)
		r = set_weight(t, dir, l->weight, e);
	if (r == 0 && uses(t, "pids") && l->pids_max)
		r = set_number(dir, "pids.max", l->pids_max, e);
	return r;
}

/*
 * Creates a cgroup, or recreates an empty one: a clone into a cgroup that was once killed is killed
 * too (Linux 6.14 and later compare the kill count of the parent's cgroup with that of the target).
 * Keeps a cgroup that holds processes.
 */
static int make_fresh(const struct cgroup_tree *t, const char *name)
{
	if (mkdirat(t->top, name, 0755) == 0)
		return 0;
	if (errno != EEXIST)
		return -errno;
	unlinkat(t->top, name, AT_REMOVEDIR);
	return mkdirat(t->top, name, 0755) == 0 || errno == EEXIST ? 0 : -errno;
}

static int open_cgroup(const struct cgroup_tree *t, const char *name, struct err *e)
{
	int dir = open_dir(t->top, name);

	return dir < 0 ? err_set(e, errno, "open cgroup %s/ramet/%s", t->path, name) : dir;
}

int cgroup_make(const struct cgroup_tree *t, const char *name, const struct cgroup_limits *limits,
		struct err *e)
{
	int r = make_fresh(t, name);

	if (r < 0)
		return err_set(e, -r, "create cgroup %s/ramet/%s", t->path, name);
	scoped_fd int dir = open_dir(t->top, name);
	if (dir < 0 || fchmod(dir, 0755) < 0) /* the service reads its statistics */
		return err_set(e, errno, "open cgroup %s/ramet/%s", t->path, name);
	if (limits && set_limits(t, dir, limits, e) < 0) {
		unlinkat(t->top, name, AT_REMOVEDIR);
		return err_context(e, "cgroup %s/ramet/%s", t->path, name);
	}
	return take_fd(&dir);
}

int cgroup_limit(const struct cgroup_tree *t, const char *name, const struct cgroup_limits *limits,
		 struct err *e)
{
	scoped_fd int dir = open_cgroup(t, name, e);

	if (dir < 0)
		return dir;
	int r = set_limits(t, dir, limits, e);
	return r < 0 ? err_context(e, "cgroup %s/ramet/%s", t->path, name) : 0;
}

int cgroup_limit_all(const struct cgroup_tree *t, uint64_t memory_max, uint32_t weight,
		     struct err *e)
{
	/* BASE competes with the rest of the host, or BASE/ramet does if BASE is the root. If BASE
	 * belongs to somebody else, as under systemd, so does its weight. */
	if (uses(t, "cpu") && t->base_is_named)
		set_number(t->base, "cpu.weight", weight, NULL);
	if (uses(t, "cpu"))
		set_number(t->top, "cpu.weight", weight, NULL);
	if (!uses(t, "memory"))
		return 0;
	int r = set_number(t->top, "memory.max", memory_max, e);
	return r < 0 ? err_context(e, "cgroup %s/ramet", t->path) : 0;
}

/* Returns the value of `name` in memory.stat; 0 when missing. */
static uint64_t stat_of(const char *text, const char *name)
{
	size_t len = strlen(name);

	for (const char *line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncmp(line, name, len) == 0 && line[len] == ' ')
			return strtoull(line + len, NULL, 10);
	}
	return 0;
}

int cgroup_charged(const struct cgroup_tree *t, const char *name, uint64_t *bytes, struct err *e)
{
	char current[32], stat[STAT_MAX];

	if (!uses(t, "memory"))
		return err_say(e, ENOTSUP, "the memory controller is off for cgroup %s/ramet/%s",
			       t->path, name);
	scoped_fd int dir = open_cgroup(t, name, e);
	if (dir < 0)
		return dir;
	int r = text_file_read(dir, "memory.current", current, sizeof(current));
	if (r >= 0)
		r = text_file_read(dir, "memory.stat", stat, sizeof(stat));
	if (r < 0)
		return err_set(e, -r, "read the memory of cgroup %s/ramet/%s", t->path, name);
	/* Memory files (memfds), such as layers, are on the anonymous lists and so in neither of
	 * these. */
	uint64_t all = strtoull(current, NULL, 10);
	uint64_t cache = stat_of(stat, "active_file") + stat_of(stat, "inactive_file");
	*bytes = all > cache ? all - cache : 0;
	return 0;
}

static int set_oom_score(const char *pid, const char *score)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%.16s/oom_score_adj", pid);
	return text_file_write(AT_FDCWD, path, score);
}

int cgroup_oom_score(const struct cgroup_tree *t, const char *name, const char *score,
		     struct err *e)
{
	char path[TEXT_MAX], pids[TEXT_MAX];
	char *rest = pids, *pid;

	file_of(path, name, "cgroup.procs");
	int r = text_file_read(t->top, path, pids, sizeof(pids));
	while (r >= 0 && (pid = strsep(&rest, "\n")))
		r = *pid ? set_oom_score(pid, score) : 0;
	/* The process may have ended in the meantime. */
	return r < 0 && r != -ENOENT && r != -ESRCH
		       ? err_set(e, -r, "set the OOM score of cgroup %s/ramet/%s", t->path, name)
		       : 0;
}

int cgroup_remove(const struct cgroup_tree *t, const char *name, struct err *e)
{
	if (unlinkat(t->top, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
		return err_set(e, errno, "remove cgroup %s/ramet/%s", t->path, name);
	return 0;
}

int cgroup_kill(const struct cgroup_tree *t, const char *name, struct err *e)
{
	char path[TEXT_MAX];

	file_of(path, name, "cgroup.kill");
	int r = text_file_write(t->top, path, "1");
	if (r < 0 && r != -ENOENT)
		return err_set(e, -r, "kill cgroup %s/ramet/%s", t->path, name);
	return 0;
}

int cgroup_watch(const struct cgroup_tree *t, const char *name, struct err *e)
{
	char path[TEXT_MAX];

	file_of(path, name, "cgroup.events");
	int fd = openat(t->top, path, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? err_set(e, errno, "open %s of cgroup %s/ramet", path, t->path) : fd;
}

int cgroup_populated(int events)
{
	char text[TEXT_MAX];

	ssize_t n = pread(events, text, sizeof(text) - 1, 0);
	if (n < 0)
		return -errno;
	text[n] = '\0';
	return strstr(text, "populated 1") != NULL;
}

int cgroup_empty(const struct cgroup_tree *t, const char *name, struct err *e)
{
	scoped_fd int events = cgroup_watch(t, name, e);

	if (events < 0)
		return events;
	while (cgroup_populated(events) == 1) {
		struct pollfd p = {.fd = events, .events = POLLPRI};

		int r = cgroup_kill(t, name, e);
		if (r < 0)
			return r;
		if (poll(&p, 1, 10000) == 0)
			return err_say(e, ETIMEDOUT,
				       "processes in cgroup %s/ramet/%s did not die within 10 s",
				       t->path, name);
	}
	return 0;
}

/* --- listing --------------------------------------------------------------------------------- */

bool cgroup_vm_name(const char *name, uint32_t *slot)
{
	char again[32];

	if (strncmp(name, "vm-", 3) != 0 || strlen(name) > 8)
		return false;
	unsigned long n = strtoul(name + 3, NULL, 10);
	snprintf(again, sizeof(again), "vm-%lu", n);
	if (strcmp(again, name) != 0 || n >= WARDEN_SLOTS_MAX)
		return false;
	*slot = (uint32_t)n;
	return true;
}

int cgroup_each_vm(const struct cgroup_tree *t, void (*each)(void *arg, uint32_t slot), void *arg,
		   struct err *e)
{
	DIR *dir = directory_list(t->top, ".");
	struct dirent *entry;
	uint32_t slot;

	if (!dir)
		return err_set(e, errno, "list cgroup %s/ramet", t->path);
	while ((entry = readdir(dir)))
		if (cgroup_vm_name(entry->d_name, &slot))
			each(arg, slot);
	closedir(dir);
	return 0;
}
