// SPDX-License-Identifier: Apache-2.0
/*
 * What an operator asks of the host again and again, looked up on a worker thread every few
 * seconds: files under /proc and the disk can keep a reader waiting.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>

#include "base/fd.h"
#include "orchestrator/core/internal.h"

#define EVERY_MS 10000
#define PROBE	 4096

struct watching {
	struct core *core; /* NULL: it is gone */
	char dir[CONFIG_PATH_MAX];
	struct watched found;
	size_t n;
	uint32_t pids[];
};

/* From /proc/PID/statm, which any user may read: pages that are the process's own, and those that
 * it shares with others through a file (the template's memory) or a memfd. */
bool watch_memory(uint32_t pid, uint64_t *private_bytes, uint64_t *shared_bytes)
{
	char path[64], text[128];
	unsigned long total, resident, shared;

	snprintf(path, sizeof(path), "/proc/%u/statm", pid);
	scoped_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t len = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	if (len <= 0)
		return false;
	text[len] = 0;
	if (sscanf(text, "%lu %lu %lu", &total, &resident, &shared) != 3 || shared > resident)
		return false;
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	*private_bytes = (resident - shared) * page;
	*shared_bytes = shared * page;
	return true;
}

/* --- on the worker -------------------------------------------------------------------------- */

/* Whether a file can be written there, which a full disk and one gone read-only deny. */
static void probe_disk(const char *dir, struct watched *found)
{
	static const char zeros[PROBE];
	struct statvfs fs;
	struct err e;

	found->disk_trouble[0] = 0;
	if (statvfs(dir, &fs) == 0)
		found->disk_free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
	scoped_fd int fd = open(dir, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
	if (fd < 0 && errno == EOPNOTSUPP)
		return; /* such files are not to be had there */
	if (fd >= 0 && write(fd, zeros, PROBE) == PROBE)
		return;
	err_set(&e, errno, "state_dir %.100s can't be written", dir);
	snprintf(found->disk_trouble, sizeof(found->disk_trouble), "%s", e.text);
}

static void on_work(void *arg)
{
	struct watching *w = arg;
	uint64_t own, shared;

	for (size_t i = 0; i < w->n; i++) {
		if (!watch_memory(w->pids[i], &own, &shared))
			continue;
		w->found.memory_private_bytes += own;
		w->found.memory_shared_bytes += shared;
	}
	probe_disk(w->dir, &w->found);
}

/* --- on the loop ---------------------------------------------------------------------------- */

static void on_done(void *arg)
{
	struct watching *w = arg;

	if (w->core) {
		w->core->watched = w->found;
		w->core->watching = NULL;
		loop_timer_set(w->core->loop, &w->core->watch_timer, EVERY_MS);
	}
	free(w);
}

static void on_timer(void *arg)
{
	struct core *c = arg;
	struct watching *w = must_alloc(sizeof(*w) + c->n_sandboxes * sizeof(w->pids[0]));

	w->core = c;
	snprintf(w->dir, sizeof(w->dir), "%s", c->config.state_dir);
	list_each (pos, &c->sandboxes) {
		const struct sandbox *s = container_of(pos, struct sandbox, link);

		if (s->state < SBX_ENDING && w->n < c->n_sandboxes)
			w->pids[w->n++] = s->pid;
	}
	c->watching = w;
	if (loop_work(c->loop, on_work, on_done, w) == 0)
		return;
	c->watching = NULL;
	free(w);
	loop_timer_set(c->loop, &c->watch_timer, EVERY_MS);
}

void watch_start(struct core *c)
{
	c->watch_timer = (struct loop_timer){.fn = on_timer, .arg = c};
	loop_timer_set(c->loop, &c->watch_timer, 0);
}

void watch_stop(struct core *c)
{
	loop_timer_clear(c->loop, &c->watch_timer);
	if (c->watching)
		c->watching->core = NULL;
	c->watching = NULL;
}

void watch_figures(const struct core *c, struct core_figures *out)
{
	out->memory_private_bytes = c->watched.memory_private_bytes;
	out->memory_shared_bytes = c->watched.memory_shared_bytes;
	out->disk_free_bytes = c->watched.disk_free_bytes;
	out->ready = out->running = out->adopting = 0;
	list_each (pos, &c->sandboxes) {
		const struct sandbox *s = container_of(pos, struct sandbox, link);

		out->ready += s->state == SBX_READY;
		out->running += s->state == SBX_RUNNING;
		out->adopting += s->state == SBX_ADOPTING;
	}
}

void core_checks(const struct core *c, void (*each)(void *arg, const char *name, const char *why),
		 void *arg)
{
	const char *template = template_trouble(c->def);

	if (template_ready(c->def))
		template = NULL;
	else if (!template[0])
		template = "it is being prepared";
	each(arg, "service", c->closing ? "it is stopping" : NULL);
	each(arg, "warden", c->vms.warden_lost ? "it is gone" : NULL);
	each(arg, "template", template);
	each(arg, "pool",
	     c->config.pool_warm && !c->pool.main.was_filled ? "the first sandbox is being made"
							     : NULL);
	each(arg, "disk", c->watched.disk_trouble[0] ? c->watched.disk_trouble : NULL);
}
