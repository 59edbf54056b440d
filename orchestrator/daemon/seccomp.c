// SPDX-License-Identifier: Apache-2.0
/*
 * The filter is written without a library: it has a list of allowed calls, checks the arguments of
 * a few others, and kills the process for the rest. The kernel caches which calls are always
 * allowed, so that the length of the list costs nothing (seccomp_cache_prepare, Linux 5.11).
 */
#include "orchestrator/daemon/seccomp.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/fs.h>
#include <linux/prctl.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/sanitizer.h"

/* clang-format off */
static const uint16_t allowed[] = {
	/* io_uring, for most operations; the ring is made and restricted before the filter */
	SYS_io_uring_enter,
	/* h2o's loop, signals and wake-ups */
	SYS_epoll_create, SYS_epoll_create1, SYS_epoll_ctl, SYS_epoll_wait, SYS_epoll_pwait, SYS_poll, SYS_ppoll,
	SYS_eventfd2, SYS_signalfd4, SYS_pipe2, SYS_timerfd_create, SYS_timerfd_settime,
	/* changes of the fleet's table */
	SYS_inotify_init1, SYS_inotify_add_watch,
	/* clients, control sockets, the warden */
	SYS_socketpair, SYS_bind, SYS_listen, SYS_accept4, SYS_accept, SYS_connect,
	SYS_getsockname, SYS_getpeername, SYS_getsockopt, SYS_setsockopt, SYS_sendto,
	SYS_recvfrom, SYS_sendmsg, SYS_recvmsg, SYS_shutdown,
	/* descriptors and bytes */
	SYS_read, SYS_write, SYS_readv, SYS_writev, SYS_pread64, SYS_pwrite64, SYS_preadv,
	SYS_pwritev, SYS_close, SYS_close_range, SYS_fcntl, SYS_dup, SYS_dup3, SYS_lseek,
	/* snapshots, disks and the catalogue (SQLite locks, maps and syncs its files) */
	SYS_openat, SYS_open, SYS_fstat, SYS_stat, SYS_lstat, SYS_newfstatat, SYS_statx,
	SYS_statfs, SYS_fstatfs, SYS_access, SYS_faccessat, SYS_faccessat2, SYS_readlink,
	SYS_readlinkat, SYS_getdents64, SYS_getcwd, SYS_ftruncate, SYS_fallocate, SYS_fsync,
	SYS_fdatasync, SYS_sync_file_range, SYS_fadvise64, SYS_flock, SYS_fchmod, SYS_fchmodat,
	SYS_chmod, SYS_unlink, SYS_unlinkat, SYS_rename, SYS_renameat, SYS_renameat2, SYS_mkdir,
	SYS_mkdirat, SYS_rmdir, SYS_linkat, SYS_utimensat, SYS_umask, SYS_copy_file_range,
	/* memory */
	SYS_mmap, SYS_munmap, SYS_mprotect, SYS_mremap, SYS_madvise, SYS_brk, SYS_memfd_create,
	/* threads (clone is below) */
	SYS_futex, SYS_set_robust_list, SYS_rseq, SYS_sched_yield, SYS_sched_getaffinity,
	SYS_gettid, SYS_getpid, SYS_getcpu, SYS_exit, SYS_exit_group,
	/* abort(3) and signal handlers */
	SYS_tgkill, SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_sigaltstack,
	SYS_restart_syscall,
	/* time */
	SYS_clock_gettime, SYS_clock_getres, SYS_gettimeofday, SYS_time, SYS_nanosleep,
	SYS_clock_nanosleep,
	/* queries by libraries */
	SYS_getrandom, SYS_getuid, SYS_geteuid, SYS_getgid, SYS_getegid, SYS_getppid, SYS_uname,
	SYS_sysinfo, SYS_getrusage, SYS_prlimit64,
};
/* clang-format on */

static const uint32_t allowed_ioctls[] = {
	FICLONE,
	FICLONERANGE, /* disk layers are shared instead of copied */
	FIONBIO,
	FIONREAD, /* sockets */
	0x5401 /* TCGETS: stdio asks whether its file is a terminal */,
};

static const uint32_t allowed_prctls[] = {
	PR_SET_NAME, PR_SET_VMA, /* names of threads; names of malloc's memory */
};

/* --- the program ----------------------------------------------------------------------------- */

#define PROGRAM_MAX    512
#define SOCK_TYPE_MASK 0xf /* the other bits of socket(2)'s type are flags */

struct program {
	struct sock_filter code[PROGRAM_MAX];
	unsigned short len;
};

static void emit(struct program *p, uint16_t code, uint8_t yes, uint8_t no, uint32_t k)
{
	p->code[p->len++] = (struct sock_filter){code, yes, no, k};
}

static void load(struct program *p, size_t offset)
{
	emit(p, BPF_LD | BPF_W | BPF_ABS, 0, 0, (uint32_t)offset);
}

/* Loads the low half of an argument, which is all that the kernel uses of an int or unsigned int.
 * x86 is little-endian. */
static void load_argument(struct program *p, unsigned index)
{
	load(p, offsetof(struct seccomp_data, args) + index * sizeof(uint64_t));
}

static void answer(struct program *p, uint32_t what)
{
	emit(p, BPF_RET | BPF_K, 0, 0, what);
}

/* Skips the next `skip` instructions unless the loaded word is `value`. */
static void unless(struct program *p, uint32_t value, uint8_t skip)
{
	emit(p, BPF_JMP | BPF_JEQ | BPF_K, 0, skip, value);
}

static void allow(struct program *p, uint32_t nr)
{
	unless(p, nr, 1);
	answer(p, SECCOMP_RET_ALLOW);
}

static void allow_values(struct program *p, uint32_t nr, unsigned index, const uint32_t *values,
			 uint8_t count)
{
	unless(p, nr, (uint8_t)(2 + 2 * count));
	load_argument(p, index);
	for (uint8_t i = 0; i < count; i++)
		allow(p, values[i]);
	answer(p, SECCOMP_RET_KILL_PROCESS);
}

/* Allows threads, but not processes. The arguments of clone3 are in memory, which a filter cannot
 * read, so it fails with ENOSYS; libc then uses clone. */
static void allow_threads(struct program *p)
{
	unless(p, SYS_clone3, 1);
	answer(p, SECCOMP_RET_ERRNO | ENOSYS);
	unless(p, SYS_clone, 4);
	load_argument(p, 0);
	emit(p, BPF_JMP | BPF_JSET | BPF_K, 0, 1, CLONE_THREAD);
	answer(p, SECCOMP_RET_ALLOW);
	answer(p, SECCOMP_RET_KILL_PROCESS);
}

/*
 * Allows AF_UNIX stream and packet sockets, and TCP for clients. Forbids datagrams, raw sockets,
 * netlink, and also MPTCP and SCTP, which Landlock's rules for TCP do not cover.
 */
static void allow_sockets(struct program *p)
{
	unless(p, SYS_socket, 21);
	load_argument(p, 2);
	emit(p, BPF_JMP | BPF_JEQ | BPF_K, 2, 0, 0);
	emit(p, BPF_JMP | BPF_JEQ | BPF_K, 1, 0, IPPROTO_TCP);
	answer(p, SECCOMP_RET_KILL_PROCESS);
	load_argument(p, 1);
	emit(p, BPF_ALU | BPF_AND | BPF_K, 0, 0, SOCK_TYPE_MASK);
	emit(p, BPF_JMP | BPF_JEQ | BPF_K, 6, 0, SOCK_STREAM);
	emit(p, BPF_JMP | BPF_JEQ | BPF_K, 1, 0, SOCK_SEQPACKET);
	answer(p, SECCOMP_RET_KILL_PROCESS);
	load_argument(p, 0);
	allow(p, AF_UNIX);
	answer(p, SECCOMP_RET_KILL_PROCESS);
	load_argument(p, 0); /* the family of a stream socket */
	allow(p, AF_UNIX);
	allow(p, AF_INET);
	allow(p, AF_INET6);
	answer(p, SECCOMP_RET_KILL_PROCESS);
}

static void write_program(struct program *p)
{
	load(p, offsetof(struct seccomp_data, arch));
	emit(p, BPF_JMP | BPF_JEQ | BPF_K, 1, 0, AUDIT_ARCH_X86_64);
	answer(p, SECCOMP_RET_KILL_PROCESS);
	load(p, offsetof(struct seccomp_data, nr));
	for (size_t i = 0; i < ARRAY_LEN(allowed); i++)
		allow(p, allowed[i]);
	allow_values(p, SYS_ioctl, 1, allowed_ioctls, ARRAY_LEN(allowed_ioctls));
	allow_values(p, SYS_prctl, 0, allowed_prctls, ARRAY_LEN(allowed_prctls));
	allow_threads(p);
	allow_sockets(p);
	answer(p, SECCOMP_RET_KILL_PROCESS);
}

int seccomp_confine(struct err *e)
{
	/* Two instructions for each call, and room for the rest. */
	_Static_assert(2 * ARRAY_LEN(allowed) + 64 < PROGRAM_MAX, "the program fits");
	struct program p = {.len = 0};

	if (HAS_SANITIZER) {
		log_warn("built with a sanitizer: the service is not confined by seccomp");
		return 0;
	}
	write_program(&p);
	struct sock_fprog prog = {.len = p.len, .filter = p.code};
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog) < 0)
		return err_set(e, errno, "install the seccomp filter");
	return 0;
}
