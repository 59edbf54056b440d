// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/vm/look.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/proc.h"
#include "base/report.h"
#include "base/text-file.h"
#include "orchestrator/vm/internal.h"

#define THREADS_MAX 64 /* a VM process has one thread for each vCPU, and few others */

struct vmproc_look {
	struct vmproc_host *host;
	uint32_t pid;
	struct vmproc_request *request; /* in flight; NULL: none */
	struct loop_timer limit;
	struct deferred deferred;
	int fd; /* memory file that receives the VM process's report */
	bool answers, wrote;
	bool working;	    /* a worker thread is using it */
	vmproc_look_fn *fn; /* NULL: cancelled */
	void *arg;
	struct report report;
	char text[VM_LOOK_TEXT_MAX];
};

/* --- the service's own data ----------------------------------------------------------------- */

/* Adds what the service knows of the VM, including its requests in flight. */
static void report_vm(const struct vmproc *vm, struct report *r)
{
	static const char *const names[VM_NSTATES] = {
		[VM_WAITING] = "waits for a slot",
		[VM_SPAWNING] = "the warden starts its process",
		[VM_GREETING] = "waiting for its hello",
		[VM_BLANK] = "blank",
		[VM_FILLING] = "being booted or restored",
		[VM_RUNNING] = "running",
		[VM_PAUSING] = "being paused",
		[VM_PAUSED] = "paused",
		[VM_FREEZING] = "being snapshotted, stays paused",
		[VM_STARTING] = "resuming",
		[VM_QUITTING] = "quitting",
		[VM_BROKEN] = "broken",
		[VM_RELEASING] = "dropped: its slot is being emptied",
	};

	report_add(r, "VM in slot %u: %s, process %u, %u MiB, %u vCPUs%s%s\n", vm->id.slot,
		   names[vm->state], vm->id.pid, vm->spec.ram_mib, vm->spec.vcpus,
		   vm->reason[0] ? ": " : "", vm->reason);
	vmproc_report_requests(vm, r);
}

/* --- on a worker ---------------------------------------------------------------------------- */

struct task {
	uint32_t pid;
	unsigned tid;
};

#define TASK_PATH 96
static void task_path(const struct task *t, const char *file, char out[static TASK_PATH])
{
	snprintf(out, TASK_PATH, "/proc/%u/task/%u/%s", t->pid, t->tid, file);
}

/* Fields as in schedstat (Documentation/scheduler/sched-stats.rst). */
static void add_schedstat(const struct task *t, struct report *r)
{
	unsigned long long ran_ns, waited_ns;
	char path[TASK_PATH], text[128];

	task_path(t, "schedstat", path);
	if (text_file_read(AT_FDCWD, path, text, sizeof(text)) > 0 &&
	    sscanf(text, "%llu %llu", &ran_ns, &waited_ns) == 2)
		report_add(r, ", ran %.3f ms, waited for a CPU %.3f ms", (double)ran_ns / 1e6,
			   (double)waited_ns / 1e6);
}

static void add_wchan(const struct task *t, struct report *r)
{
	char path[TASK_PATH], text[64];

	task_path(t, "wchan", path);
	if (text_file_read(AT_FDCWD, path, text, sizeof(text)) > 0 && strcmp(text, "0") != 0)
		report_add(r, ", sleeps in %s", text);
}

static void add_thread(const struct task *t, struct report *r)
{
	struct proc_stat stat;
	char path[TASK_PATH];

	task_path(t, "stat", path);
	if (!proc_stat_read(path, &stat))
		return;
	report_add(r, "  thread %u (", t->tid);
	report_add_foreign(r, stat.name, sizeof(stat.name));
	report_add(r, "): state %c, user %llu ms, system %llu ms, %llu major faults", stat.state,
		   (unsigned long long)stat.user_ms, (unsigned long long)stat.system_ms,
		   (unsigned long long)stat.major_faults);
	add_schedstat(t, r);
	add_wchan(t, r);
	report_add(r, "\n");
}

static void add_threads(uint32_t pid, struct report *r)
{
	char path[64];
	unsigned n = 0;

	snprintf(path, sizeof(path), "/proc/%u/task", pid);
	DIR *dir = pid ? opendir(path) : NULL;
	if (!dir) {
		report_add(r, pid ? "the host has no process %u\n" : "the VM has no process\n",
			   pid);
		return;
	}
	report_add(r, "threads of process %u, by the host:\n", pid);
	for (struct dirent *e; n < THREADS_MAX && (e = readdir(dir)); n++) {
		const struct task task = {pid, (unsigned)strtoul(e->d_name, NULL, 10)};

		if (task.tid) /* not for . and .. */
			add_thread(&task, r);
	}
	closedir(dir);
}

/* Adds the host's CPU, disk and memory pressure over the last seconds (PSI). */
static void add_pressure(struct report *r)
{
	static const char *const names[] = {"cpu", "io", "memory"};
	char path[64], text[256];

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		snprintf(path, sizeof(path), "/proc/pressure/%s", names[i]);
		if (text_file_read(AT_FDCWD, path, text, sizeof(text)) <= 0)
			continue;
		text[strcspn(text, "\n")] = 0;
		report_add(r, "host's pressure, %s: %s\n", names[i], text);
	}
}

static void add_vm_report(const struct vmproc_look *l, struct report *r)
{
	scoped_free char *text = must_alloc(CTL_REPORT_MAX);
	ssize_t len = pread(l->fd, text, CTL_REPORT_MAX, 0);

	report_add(r, "the VM process says:\n");
	report_add_foreign(r, text, len > 0 ? (size_t)len : 0);
}

static void work(void *arg)
{
	struct vmproc_look *l = arg;

	if (l->wrote)
		add_vm_report(l, &l->report);
	add_threads(l->pid, &l->report);
	add_pressure(&l->report);
}

/* --- on the loop ---------------------------------------------------------------------------- */

static void look_free(struct vmproc_look *l)
{
	close_fd(&l->fd);
	free(l);
}

static void notify(void *arg)
{
	struct vmproc_look *l = arg;

	if (l->fn)
		l->fn(l->arg, l->answers, l->text);
	look_free(l);
}

static void begin_work(struct vmproc_look *l)
{
	loop_timer_clear(l->host->loop, &l->limit);
	/* These are /proc files, which never wait for a disk. */
	l->working = loop_work(l->host->loop, LOOP_CPU, work, notify, l) == 0;
	if (l->working)
		return;
	report_add(&l->report, "not enough memory to inspect the host's threads\n");
	deferred_run(l->host->deferred, &l->deferred, notify, l);
}

static void on_report(void *arg, int error, const char *text, const struct ctl_msg *reply)
{
	struct vmproc_look *l = arg;

	l->request = NULL;
	l->answers = reply != NULL;
	l->wrote = !error;
	if (error)
		report_add(&l->report, "the VM process can't be asked: %s\n", text);
	begin_work(l);
}

static void on_limit(void *arg)
{
	struct vmproc_look *l = arg;

	vmproc_request_cancel(l->request);
	l->request = NULL;
	report_add(&l->report, "the VM process does not answer: nothing came for %u s\n",
		   VM_LOOK_MS / 1000);
	begin_work(l);
}

/* Creates a file of fixed size, so that the VM process can neither grow it nor truncate it while it
 * is read. */
static int report_file(void)
{
	scoped_fd int fd = memfd_create("report", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0 || ftruncate(fd, CTL_REPORT_MAX) < 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) < 0)
		return -1;
	return take_fd(&fd);
}

static void ask(struct vmproc_look *l, struct vmproc *vm)
{
	int fd = fcntl(l->fd, F_DUPFD_CLOEXEC, 0);

	if (fd >= 0)
		l->request = vmproc_ask_report(vm, fd, on_report, l);
	if (l->request) {
		loop_timer_start(l->host->loop, &l->limit, on_limit, l, VM_LOOK_MS);
		return;
	}
	report_add(&l->report,
		   fd < 0 ? "no descriptor left to ask the VM process for a report\n"
			  : "the VM process has still not answered an earlier request\n");
	begin_work(l);
}

struct vmproc_look *vmproc_look(struct vmproc *vm, vmproc_look_fn *fn, void *arg)
{
	struct vmproc_look *l = must_alloc(sizeof(*l));

	l->host = vm->host;
	l->pid = vm->id.pid;
	l->fn = fn;
	l->arg = arg;
	l->report = report_on(l->text, sizeof(l->text));
	l->fd = report_file();
	report_vm(vm, &l->report);
	ask(l, vm);
	return l;
}

void vmproc_look_cancel(struct vmproc_look *l)
{
	if (!l)
		return;
	l->fn = NULL;
	if (l->working)
		return;
	loop_timer_clear(l->host->loop, &l->limit);
	deferred_cancel(&l->deferred);
	if (l->request)
		vmproc_request_cancel(l->request);
	look_free(l);
}
