// SPDX-License-Identifier: Apache-2.0
/*
 * The loop's thread never makes a system call on a file on a disk, whatever requests are in flight.
 * Syscall user dispatch, which applies to one thread, raises a signal for each of the thread's
 * system calls; the handler inspects the call before making it.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/prctl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/ucontext.h>
#include <unistd.h>

#include "orchestrator/images/templates.h"
#include "orchestrator/service/upkeep.h"
#include "orchestrator/store/keys.h"
#include "test/unit/service/world.h"

#define SKIPPED 77

/* --- intercepted system calls ---------------------------------------------------------------- */

/* The only code whose system calls raise no signal. */
long plain_call(long number, long a, long b, long c, long d, long e, long f);
void plain_return(void);
extern char plain_begin[], plain_end[];
__asm__(".text\n"
	"plain_begin:\n"
	"plain_call:\n"
	"  mov %rdi, %rax\n  mov %rsi, %rdi\n  mov %rdx, %rsi\n  mov %rcx, %rdx\n"
	"  mov %r8, %r10\n  mov %r9, %r8\n  mov 8(%rsp), %r9\n"
	"  syscall\n  ret\n"
	"plain_return:\n"
	"  mov $15, %rax\n  syscall\n  nop\n" /* the kernel checks the address that follows */
	"plain_end:\n");

#define NOTED_MAX 64

static struct {
	char selector; /* the kernel reads it before each call */
	const char *dir, *except;
	struct {
		long number;
		char path[160];
	} calls[NOTED_MAX];
	unsigned n;
} watched;

static bool is_below(const char *path, const char *dir)
{
	size_t len = strlen(dir);

	return !strncmp(path, dir, len) && (path[len] == '/' || !path[len]);
}

static void note_path(long number, const char *path)
{
	if (!is_below(path, watched.dir) || is_below(path, watched.except) ||
	    watched.n == NOTED_MAX)
		return;
	watched.calls[watched.n].number = number;
	snprintf(watched.calls[watched.n].path, sizeof(watched.calls[0].path), "%s", path);
	watched.n++;
}

static void note_fd(long number, long fd)
{
	char link[32], path[160];

	snprintf(link, sizeof(link), "/proc/self/fd/%d", (int)fd);
	long len = plain_call(SYS_readlinkat, AT_FDCWD, (long)link, (long)path, sizeof(path) - 1, 0,
			      0);
	if (len <= 0)
		return;
	path[len] = 0;
	note_path(number, path);
}

static void note_at(long number, long dir, const char *path)
{
	if (path && path[0] == '/')
		note_path(number, path);
	else if ((int)dir != AT_FDCWD)
		note_fd(number, dir);
}

static void note(long number, long a, long b, long d)
{
	switch (number) {
	case SYS_open:
	case SYS_creat:
	case SYS_stat:
	case SYS_lstat:
	case SYS_access:
	case SYS_truncate:
	case SYS_mkdir:
	case SYS_rmdir:
	case SYS_unlink:
	case SYS_rename:
	case SYS_link:
	case SYS_symlink:
	case SYS_readlink:
	case SYS_chmod:
	case SYS_statfs:
		note_path(number, (const char *)a);
		break;
	case SYS_renameat:
	case SYS_renameat2:
	case SYS_linkat:
		note_at(number, d, (const char *)b);
		/* fallthrough */
	case SYS_openat:
	case SYS_newfstatat:
	case SYS_statx:
	case SYS_faccessat:
	case SYS_faccessat2:
	case SYS_unlinkat:
	case SYS_mkdirat:
	case SYS_readlinkat:
	case SYS_utimensat:
	case SYS_fchmodat:
		note_at(number, a, (const char *)b);
		break;
	case SYS_read:
	case SYS_readv:
	case SYS_pread64:
	case SYS_write:
	case SYS_writev:
	case SYS_pwrite64:
	case SYS_pwritev:
	case SYS_fsync:
	case SYS_fdatasync:
	case SYS_ftruncate:
	case SYS_fallocate:
	case SYS_getdents64:
	case SYS_fchmod:
	case SYS_fstatfs:
	case SYS_flock:
		note_fd(number, a);
		break;
	case SYS_sendfile:
		note_fd(number, b);
		break;
	}
}

static void on_call(int sig, siginfo_t *info, void *context)
{
	greg_t *r = ((ucontext_t *)context)->uc_mcontext.gregs;
	long number = r[REG_RAX];

	note(number, r[REG_RDI], r[REG_RSI], r[REG_RDX]);
	r[REG_RAX] = plain_call(number, r[REG_RDI], r[REG_RSI], r[REG_RDX], r[REG_R10], r[REG_R8],
				r[REG_R9]);
}

/* The kernel's struct sigaction, to set `restorer`: the return from the handler must raise no
 * signal. */
struct kernel_action {
	void (*handler)(int sig, siginfo_t *info, void *context);
	unsigned long flags;
	void (*restorer)(void);
	unsigned long mask;
};

static bool watch_begin(struct world *w)
{
	static char except[128];
	const struct kernel_action action = {on_call, SA_SIGINFO | 0x04000000 /* SA_RESTORER */,
					     plain_return, 0};

	snprintf(except, sizeof(except), "%s/run", w->dir);
	watched.dir = w->dir;
	watched.except = except;
	watched.n = 0;
	watched.selector = SYSCALL_DISPATCH_FILTER_BLOCK;
	if (syscall(SYS_rt_sigaction, SIGSYS, &action, NULL, 8) < 0)
		return false;
	return prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, plain_begin,
		     plain_end - plain_begin, &watched.selector) == 0;
}

static void watch_end(void)
{
	assert_int_equal(prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_OFF, 0, 0, 0), 0);
}

static void assert_none(void)
{
	for (unsigned i = 0; i < watched.n; i++)
		print_message("system call %ld: %s\n", watched.calls[i].number,
			      watched.calls[i].path);
	assert_int_equal(watched.n, 0);
}

/* --- requests -------------------------------------------------------------------------------- */

static void nothing(void *arg)
{
}

static void count_down(void *arg)
{
	--*(unsigned *)arg;
}

static bool is_zero(void *arg)
{
	return !*(unsigned *)arg;
}

/* Starts each pool's threads with a first job, since no thread can be started in the handler. */
static void start_pools(struct world *w)
{
	unsigned left = LOOP_NPOOLS;

	for (enum loop_pool pool = 0; pool < LOOP_NPOOLS; pool++)
		assert_int_equal(loop_work(w->loop, pool, nothing, count_down, &left), 0);
	world_until(w, is_zero, &left);
}

static void on_synced(void *arg, const struct failure *f)
{
	assert_null(f);
	*(bool *)arg = true;
}

static void on_copied(void *arg, int fd, const struct failure *f)
{
	assert_null(f);
	close(fd);
	*(bool *)arg = true;
}

static void use_all_calls(struct world *w, struct made *m)
{
	struct forked k;
	struct frozen z;
	struct run r;
	struct done d;

	world_exec(w, &r, m->view.id, "out on");
	assert_string_equal(r.out, "on");
	world_fork(w, &k, m->view.id, 2);
	assert_true(k.ok);
	world_merge(w, &d, m->view.id, k.ids[0]);
	assert_false(d.failed);
	world_freeze(w, &z, m->view.id);
	assert_true(z.ok);
	world_resume(w, m, z.id);
	assert_true(m->ok);
	world_delete(w, &d, k.ids[1]);
	assert_false(d.failed);
	world_freeze(w, &z, m->view.id);
	assert_true(z.ok);
	d = (struct done){0};
	bool gone = false;
	service_space_delete(w->service, TENANT, z.id, on_synced, &gone);
	world_until_true(w, &gone);
}

static void turn_keys(struct world *w)
{
	char text[KEY_TEXT_LEN + 1];
	const struct key *key;
	bool synced = false;
	struct err e;

	assert_int_equal(keys_create(service_keys(w->service), "one", "pro", NULL, text, &key, &e),
			 0);
	assert_int_equal(keys_revoke(service_keys(w->service), key->id, &e), 0);
	service_sync(w->service, on_synced, &synced);
	world_until_true(w, &synced);
}

/* Creates sandboxes whose VMs map a private copy of the image's memory. */
static void use_private_memory(struct world *w, struct made *m)
{
	const struct sandbox_spec sized = {.config.size.ram_mib = 192, .config.egress = true};
	const char *everybody = world_tenant;
	char text[KEY_TEXT_LEN + 1];
	const struct key *key;
	struct err e;

	assert_int_equal(keys_create(service_keys(w->service), "own", "free", NULL, text, &key, &e),
			 0);
	world_tenant = key->tenant;
	for (int i = 0; i < 2; i++) { /* the first makes the copy, the second uses it */
		world_create(w, m, &sized);
		assert_true(m->ok);
		use_all_calls(w, m);
	}
	world_tenant = everybody;
}

static void back_up(struct world *w)
{
	bool copied = false;

	service_backup(w->service, on_copied, &copied);
	world_until_true(w, &copied);
}

static void run_housekeeping(struct world *w)
{
	loop_timer_set(w->loop, &upkeep_of(w->service)->housekeeping, 0);
	loop_timer_set(w->loop, &upkeep_of(w->service)->disk.timer, 0);
	world_wait_ready(w);
}

static void count_template(void *arg, const struct template_view *view)
{
	++*(unsigned *)arg;
}

static void test_loop_thread_makes_no_disk_call(void **state)
{
	const struct sandbox_spec sized = {.config.size.ram_mib = 192, .config.egress = true};
	const struct sandbox_spec named = {.config.template = "other", .config.egress = true};
	struct world *w = *state;
	unsigned templates = 0;
	struct made m;

	world_wait_ready(w);
	start_pools(w);
	if (!watch_begin(w)) {
		print_message("no syscall user dispatch: %s\n", strerror(errno));
		skip();
	}
	world_create(w, &m, NULL); /* from the pool */
	assert_true(m.ok);
	use_all_calls(w, &m);
	world_create(w, &m, &sized); /* its template has to be booted */
	assert_true(m.ok);
	use_all_calls(w, &m);
	world_create(w, &m, &named);
	assert_true(m.ok);
	world_create(w, &m, &named);
	assert_true(m.ok);
	use_private_memory(w, &m);
	world_look(w);
	service_templates(w->service, count_template, &templates);
	turn_keys(w);
	back_up(w);
	run_housekeeping(w);
	watch_end();
	assert_int_equal(templates, 2);
	assert_none();
}

static int setup(void **state)
{
	struct world *w;
	char command[4 * CONFIG_PATH_MAX];

	if (world_setup(state) < 0)
		return -1;
	w = *state;
	world_kill_service(w);
	snprintf(w->config.tier_free, sizeof(w->config.tier_free),
		 "private_memory=yes persistent=yes spaces_gb=1 concurrent=10");
	snprintf(w->config.templates_dir, sizeof(w->config.templates_dir), "%s/templates", w->dir);
	snprintf(command, sizeof(command),
		 "mkdir -p %1$s/other && echo other > %1$s/other/rootfs.ext4 && "
		 "echo 'x = 1' > %1$s/other/warmup.py",
		 w->config.templates_dir);
	if (system(command) != 0)
		return -1;
	world_start_service(w);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_loop_thread_makes_no_disk_call, setup,
						world_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
