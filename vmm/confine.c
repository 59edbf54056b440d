// SPDX-License-Identifier: Apache-2.0
#include "vmm/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/kvm.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <linux/userfaultfd.h>
#include <seccomp.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/privileges.h"
#include "base/sanitizer.h"
#include "vmm/kvm/new-ioctls.h"

struct rule {
	int syscall;
	unsigned nargs; /* number of arguments to compare */
	struct scmp_arg_cmp args[2];
};

#define ARG_IS(nr, is)                                                                             \
	{                                                                                          \
		.arg = nr, .op = SCMP_CMP_EQ, .datum_a = is                                        \
	}
#define RULE(name)                                                                                 \
	{                                                                                          \
		.syscall = SCMP_SYS(name)                                                          \
	}
#define RULE_ARG(name, nr, is)                                                                     \
	{                                                                                          \
		.syscall = SCMP_SYS(name), .nargs = 1, .args = { ARG_IS(nr, is) }                  \
	}
#define RULE_ARGS(name, ...)                                                                       \
	{                                                                                          \
		.syscall = SCMP_SYS(name), .nargs = 2, .args = { __VA_ARGS__ }                     \
	}
#define RULE_IOCTL(request) RULE_ARG(ioctl, 1, request)

/* Allowed on both kinds of thread. */
static const struct rule both_rules[] = {
	RULE(futex),	       /* mutexes and condition variables */
	RULE(write),	       /* the log; eventfds of interrupts, doorbells and the end */
	RULE(clock_gettime),   /* when the vDSO can't serve it */
	RULE(tgkill),	       /* kicks for vCPU threads; abort() */
	RULE(rt_sigreturn),    /* return from the handler of a kick */
	RULE(restart_syscall), /* resumes a call that a stop signal interrupted */
	RULE(rt_sigprocmask),  /* abort(): a broken invariant must visibly end the process */
	RULE(gettid),	       /* abort() */
	RULE(getpid),	       /* abort(); the loop: the hello message */
	RULE(writev),	       /* message of libc about a broken heap or stack, before abort() */
	RULE(exit_group),      /* end of the process */
	RULE_IOCTL(KVM_KVMCLOCK_CTRL), /* after the guest's clock was stopped */
	RULE_IOCTL(KVM_IRQ_LINE),      /* the generation's interrupt */
};

/* Allowed on both kinds of thread until the guest runs, and denied from then on. */
static const struct rule blank_rules[] = {
	/* Installs the filter of the next stage. */
	RULE_ARGS(seccomp, ARG_IS(0, SECCOMP_SET_MODE_FILTER), ARG_IS(1, SECCOMP_FILTER_FLAG_LOG)),
	/*
	 * A vCPU's state: set on the loop's thread for a boot, on the vCPU's thread for a restore.
	 */
	RULE_IOCTL(KVM_SET_CPUID2),
	RULE_IOCTL(KVM_SET_TSC_KHZ),
	RULE_IOCTL(KVM_SET_MP_STATE),
	RULE_IOCTL(KVM_SET_SREGS),
	RULE_IOCTL(KVM_SET_REGS),
	RULE_IOCTL(KVM_SET_XCRS),
	RULE_IOCTL(KVM_SET_XSAVE),
	RULE_IOCTL(KVM_SET_DEBUGREGS),
	RULE_IOCTL(KVM_SET_LAPIC),
	RULE_IOCTL(KVM_SET_MSRS),
	RULE_IOCTL(KVM_GET_DEVICE_ATTR), /* reads the TSC offset of vCPU 0 ... */
	RULE_IOCTL(KVM_SET_DEVICE_ATTR), /* ... and sets it on the others */
	RULE_IOCTL(KVM_SET_VCPU_EVENTS),
	/* The chips of a snapshot: set on the thread of the vCPU that is set last. */
	RULE_IOCTL(KVM_SET_IRQCHIP),
	RULE_IOCTL(KVM_SET_PIT2),
	RULE_IOCTL(KVM_SET_CLOCK),
	/* Maps the working set of a snapshot. */
	RULE_ARG(madvise, 2, MADV_POPULATE_WRITE),
	RULE_IOCTL(KVM_PRE_FAULT_MEMORY),
};

/* Allowed on both kinds of thread in builds with a sanitizer, whose runtime makes these calls. */
static const struct rule sanitizer_rules[] = {
	RULE(madvise),	   /* the sanitizer's allocator and shadow memory */
	RULE(sched_yield), /* the sanitizer's locks */
	RULE(sigaltstack), /* exit(): queries the signal stack */
};

static const struct rule vcpu_rules[] = {
	RULE_IOCTL(KVM_RUN), /* the run loop, which only the end of the process ends */
};

static const struct rule loop_rules[] = {
	/* Memory: malloc, and the backing of guest RAM. */
	RULE(brk),
	RULE_ARG(mmap, 2, PROT_READ), /* never PROT_EXEC */
	RULE_ARG(mmap, 2, PROT_READ | PROT_WRITE),
	RULE(munmap),
	RULE(mremap),
	RULE(memfd_create), /* guest RAM for a boot; state and memory layers of a snapshot */
	RULE_ARG(madvise, 2, MADV_HUGEPAGE), /* guest RAM for a boot */
	RULE_ARG(madvise, 2, MADV_DONTNEED), /* free(); pages that the guest has freed */
	/* Frees pages of a memfd that the guest has freed. */
	RULE_ARG(fallocate, 1, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE),
	/* The event loop. */
	RULE(epoll_wait),
	RULE(epoll_pwait), /* glibc's implementation of epoll_wait on some CPUs */
	RULE(epoll_ctl),
	RULE(poll), /* checks whether the log accepts console output; for a report: doorbells */
	RULE(close),
	/* Sockets: the control connection, and streams joined to guest ports. */
	RULE(accept4),
	RULE(recvmsg),
	RULE(sendmsg),
	RULE(sendto),
	RULE(read),
	RULE(readv), /* frames from the tap */
	RULE(shutdown),
	RULE_IOCTL(FIONREAD), /* for a report: bytes that a stream has for the guest */
	RULE_IOCTL(SIOCOUTQ), /* for a report: bytes that the service has not read */
	RULE(getsockopt),     /* checks that a passed descriptor is a stream socket */
	/* Seals files of a snapshot, which many read and nobody writes. */
	RULE_ARG(fcntl, 1, F_ADD_SEALS),
	/* Files: kernel, initramfs, state, memory, disk layers. */
	RULE_ARG(fcntl, 1, F_GET_SEALS),     /* checks that a snapshot's memory is sealed */
	RULE_ARG(fcntl, 1, F_DUPFD_CLOEXEC), /* duplicates a snapshot's memory files */
	RULE_IOCTL(PAGEMAP_SCAN),	     /* finds the pages of RAM that the guest wrote */
	/* Finds them by watching (ram-watch.c); the descriptor is created with the blank VM. */
	RULE_IOCTL(UFFDIO_REGISTER),
	RULE_IOCTL(UFFDIO_UNREGISTER),
	RULE_IOCTL(UFFDIO_WRITEPROTECT), /* records the working set (ram-record.c) */
	RULE(fstat),
	RULE(newfstatat), /* glibc's implementation of fstat */
	RULE(lseek),	  /* finds holes in disk layers */
	RULE(pread64),
	RULE(pwrite64),
	RULE(pwritev),
	RULE(ftruncate),
	/*
	 * The disk's ring, created with the blank VM. It can only read, write, sync and punch holes
	 * (virtio/blk.c).
	 */
	RULE(io_uring_enter),
	RULE(getrandom), /* the rng device */
	/* Reads vCPUs and chips for a snapshot. All other KVM calls were made with the blank VM. */
	RULE_IOCTL(KVM_GET_MP_STATE),
	RULE_IOCTL(KVM_GET_REGS),
	RULE_IOCTL(KVM_GET_SREGS),
	RULE_IOCTL(KVM_GET_XCRS),
	RULE_IOCTL(KVM_GET_XSAVE),
	RULE_IOCTL(KVM_GET_XSAVE2),
	RULE_IOCTL(KVM_GET_DEBUGREGS),
	RULE_IOCTL(KVM_GET_LAPIC),
	RULE_IOCTL(KVM_GET_MSRS),
	RULE_IOCTL(KVM_GET_VCPU_EVENTS),
	RULE_IOCTL(KVM_GET_IRQCHIP),
	RULE_IOCTL(KVM_GET_PIT2),
	RULE_IOCTL(KVM_GET_CLOCK),
};

struct confine {
	struct sock_fprog vcpu, loop; /* allowlists, in force until the thread ends */
	struct sock_fprog running;    /* denylist, added once the guest runs */
};

static int add_rules(scmp_filter_ctx ctx, uint32_t action, const struct rule *rules, size_t count,
		     struct err *e)
{
	for (size_t i = 0; i < count; i++) {
		int r = seccomp_rule_add_array(ctx, action, rules[i].syscall, rules[i].nargs,
					       rules[i].args);

		if (r)
			return err_set(e, -r, "add the filter rule for system call %d",
				       rules[i].syscall);
	}
	return 0;
}

/* Exports the compiled program through a memfd, since libseccomp writes it to a descriptor. */
static int export(scmp_filter_ctx ctx, struct sock_fprog *out, struct err *e)
{
	scoped_fd int fd = memfd_create("filter", MFD_CLOEXEC);
	struct stat st;
	int r;

	if (fd < 0)
		return err_set(e, errno, "create a memfd for the system call filter");
	r = seccomp_export_bpf(ctx, fd);
	if (r)
		return err_set(e, -r, "compile the system call filter");
	if (fstat(fd, &st) < 0)
		return err_set(e, errno, "get the size of the system call filter");
	out->len = (unsigned short)(st.st_size / sizeof(*out->filter));
	out->filter = malloc((size_t)st.st_size);
	if (!out->filter)
		return err_set(e, ENOMEM, "allocate the system call filter");
	if (pread(fd, out->filter, (size_t)st.st_size, 0) != st.st_size)
		return err_set(e, EIO, "read the system call filter");
	return 0;
}

/* Compiles the allowlist of one kind of thread. */
static int compile_blank(struct sock_fprog *out, const struct rule *rules, size_t count,
			 struct err *e)
{
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_KILL_PROCESS);
	int r;

	if (!ctx)
		return err_set(e, ENOMEM, "create a system call filter");
	/* A binary tree instead of a chain: all system calls of a vCPU thread are hot. */
	r = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2);
	if (r)
		err_set(e, -r, "optimize the system call filter");
	if (!r)
		r = add_rules(ctx, SCMP_ACT_ALLOW, both_rules, ARRAY_LEN(both_rules), e);
	if (!r)
		r = add_rules(ctx, SCMP_ACT_ALLOW, blank_rules, ARRAY_LEN(blank_rules), e);
	if (!r && HAS_SANITIZER)
		r = add_rules(ctx, SCMP_ACT_ALLOW, sanitizer_rules, ARRAY_LEN(sanitizer_rules), e);
	if (!r)
		r = add_rules(ctx, SCMP_ACT_ALLOW, rules, count, e);
	if (!r)
		r = export(ctx, out, e);
	seccomp_release(ctx);
	return r;
}

/*
 * Compiles the filter that is added once the guest runs: it denies what only a blank VM needs. The
 * first filter stays in force, so the allowed calls are not listed again. This filter is kept short
 * because the child of a fork waits while it is installed.
 */
static int compile_running(struct sock_fprog *out, struct err *e)
{
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ALLOW);
	int r;

	if (!ctx)
		return err_set(e, ENOMEM, "create a system call filter");
	r = add_rules(ctx, SCMP_ACT_KILL_PROCESS, blank_rules, ARRAY_LEN(blank_rules), e);
	if (!r)
		r = export(ctx, out, e);
	seccomp_release(ctx);
	return r;
}

int confine_new(struct confine **out, struct err *e)
{
	struct confine *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return err_set(e, ENOMEM, "confine the process");
	/* Level 3 covers all that is used here. If none is set, libseccomp probes the kernel. */
	seccomp_api_set(3);
	r = privileges_keep(&privileges_none, e);
	if (!r)
		r = compile_blank(&c->vcpu, vcpu_rules, ARRAY_LEN(vcpu_rules), e);
	if (!r)
		r = compile_blank(&c->loop, loop_rules, ARRAY_LEN(loop_rules), e);
	if (!r)
		r = compile_running(&c->running, e);
	if (!r)
		*out = c;
	return r;
}

static int load(const struct sock_fprog *program, struct err *e)
{
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_LOG, program) < 0)
		return err_set(e, errno, "install the system call filter");
	return 0;
}

int confine_vcpu(struct confine *c, struct err *e)
{
	return load(&c->vcpu, e);
}

int confine_loop(struct confine *c, struct err *e)
{
	return load(&c->loop, e);
}

int confine_running(struct confine *c, struct err *e)
{
	return load(&c->running, e);
}
