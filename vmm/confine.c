// SPDX-License-Identifier: Apache-2.0
#include "vmm/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/kvm.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <linux/userfaultfd.h>
#include <seccomp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/fd.h"
#include "vmm/kvm/pagemap-ioctl.h"

struct rule {
	int syscall;
	unsigned nargs; /* how many arguments are compared */
	struct scmp_arg_cmp args[2];
};

#define ARG_IS(nr, is)                                                                             \
	{                                                                                          \
		.arg = nr, .op = SCMP_CMP_EQ, .datum_a = is                                        \
	}
/* No other bits are set. */
#define ARG_WITHIN(nr, bits)                                                                       \
	{                                                                                          \
		.arg = nr, .op = SCMP_CMP_MASKED_EQ, .datum_a = ~(scmp_datum_t)(bits)              \
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

/* Both kinds of thread. */
static const struct rule both_rules[] = {
	RULE(futex),	       /* mutexes and condition variables */
	RULE(write),	       /* the log; eventfds of interrupts and of the loop */
	RULE(clock_gettime),   /* when the vDSO can't serve it */
	RULE(tgkill),	       /* kicks of vCPU threads; abort() */
	RULE(rt_sigreturn),    /* the end of the handler of a kick */
	RULE(restart_syscall), /* goes on with what a stop signal interrupted */
	RULE(rt_sigprocmask),  /* abort(): a broken invariant must end the process, visibly */
	RULE(gettid),	       /* abort() */
	RULE(getpid),	       /* abort(); the loop: how it greets */
	RULE(writev),	       /* what libc says of a broken heap or stack before abort() */
	RULE(exit_group),      /* the end of the process */
	RULE_IOCTL(KVM_KVMCLOCK_CTRL), /* the guest's clock stood still */
};

/* Both kinds of thread, until the guest runs. */
static const struct rule fill_rules[] = {
	/* The filter of the next stage. */
	RULE_ARGS(seccomp, ARG_IS(0, SECCOMP_SET_MODE_FILTER), ARG_IS(1, SECCOMP_FILTER_FLAG_LOG)),
	/* A vCPU's state: of a guest that boots on the loop's thread, of an image on its own. */
	RULE_IOCTL(KVM_SET_CPUID2), RULE_IOCTL(KVM_SET_TSC_KHZ), RULE_IOCTL(KVM_SET_MP_STATE),
	RULE_IOCTL(KVM_SET_SREGS), RULE_IOCTL(KVM_SET_REGS), RULE_IOCTL(KVM_SET_XCRS),
	RULE_IOCTL(KVM_SET_XSAVE), RULE_IOCTL(KVM_SET_DEBUGREGS), RULE_IOCTL(KVM_SET_LAPIC),
	RULE_IOCTL(KVM_SET_MSRS), RULE_IOCTL(KVM_SET_VCPU_EVENTS),
	/* The chips of an image: on the thread of the vCPU that is set last. */
	RULE_IOCTL(KVM_SET_IRQCHIP), RULE_IOCTL(KVM_SET_PIT2), RULE_IOCTL(KVM_SET_CLOCK),
	RULE_IOCTL(KVM_IRQ_LINE), /* tells the guest's kernel that it is a copy */
};

static const struct rule vcpu_rules[] = {
	RULE_IOCTL(KVM_RUN),		     /* the run loop */
	RULE_ARG(madvise, 2, MADV_DONTNEED), /* the end of a thread: its stack */
	RULE(exit),			     /* the end of a thread */
};

static const struct rule loop_rules[] = {
	/* Memory: malloc, and what guest RAM is backed with. */
	RULE(brk),
	RULE_ARG(mmap, 2, PROT_READ), /* and nothing that could be executed */
	RULE_ARG(mmap, 2, PROT_READ | PROT_WRITE),
	RULE(munmap),
	RULE(mremap),
	RULE(memfd_create),		     /* the RAM of a guest that boots */
	RULE_ARG(madvise, 2, MADV_HUGEPAGE), /* the same */
	RULE_ARG(madvise, 2, MADV_DONTNEED), /* free(); pages that the guest gave back */
	RULE_ARG(fallocate, 1, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE), /* the same */
	/* The loop itself. */
	RULE(epoll_wait),
	RULE(epoll_pwait), /* what glibc makes of epoll_wait on some CPUs */
	RULE(epoll_ctl),
	RULE(poll), /* does the log take more of what the guest's console says? */
	RULE(close),
	/* Sockets: the control connection, and streams joined to guest ports. */
	RULE(accept4),
	RULE(recvmsg),
	RULE(sendmsg),
	RULE(sendto),
	RULE(read),
	RULE(readv), /* frames of the tap */
	RULE(shutdown),
	RULE_IOCTL(FIONREAD),	     /* for a report: bytes that wait in such a stream */
	RULE_IOCTL(SIOCOUTQ),	     /* the same, in the other direction */
	RULE(getsockopt),	     /* is what was passed a stream socket? */
	RULE_ARG(fcntl, 1, F_GETFL), /* the same: does it block? */
	/* Not O_DIRECT or O_APPEND: other VM processes share the open file of an image. */
	RULE_ARGS(fcntl, ARG_IS(1, F_SETFL), ARG_WITHIN(2, O_ACCMODE | O_NONBLOCK)),
	RULE_ARG(fcntl, 1, F_ADD_SEALS), /* files of an image: read by many, written by none */
	/* Files: kernel, initramfs, state, memory, disk layers. */
	RULE_ARG(fcntl, 1, F_GET_SEALS),     /* is an image's memory what it seems to be? */
	RULE_ARG(fcntl, 1, F_DUPFD_CLOEXEC), /* what RAM keeps of an image */
	RULE_IOCTL(PAGEMAP_SCAN),	     /* which pages of RAM the guest wrote */
	RULE_IOCTL(UFFDIO_REGISTER),	     /* the same, from a moment on; made with the shell */
	RULE_IOCTL(UFFDIO_UNREGISTER),
	RULE(fstat),
	RULE(newfstatat), /* what glibc makes of fstat */
	RULE(lseek),	  /* what is a hole in guest memory */
	RULE(pread64),
	RULE(pwrite64),
	RULE(pwritev),
	RULE(ftruncate),
	/* The disk's ring, made before: it reads, writes, syncs and punches holes, and can't be
	 * made to do more. */
	RULE(io_uring_enter),
	RULE(getrandom), /* the rng device */
	/* vCPUs and chips are read for an image; all else KVM was asked for with the shell. */
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

/* The filters of a thread: until the guest runs, and from then on. */
struct stages {
	struct sock_fprog fill, run;
};

struct confine {
	struct stages vcpu, loop;
};

static int add_rules(scmp_filter_ctx ctx, const struct rule *rules, size_t count, struct err *e)
{
	for (size_t i = 0; i < count; i++) {
		int r = seccomp_rule_add_array(ctx, SCMP_ACT_ALLOW, rules[i].syscall,
					       rules[i].nargs, rules[i].args);

		if (r)
			return err_set(e, -r, "rule for system call %d", rules[i].syscall);
	}
	return 0;
}

/* The compiled program, by way of a memory file, since libseccomp writes it to a descriptor. */
static int export(scmp_filter_ctx ctx, struct sock_fprog *out, struct err *e)
{
	scoped_fd int fd = memfd_create("filter", MFD_CLOEXEC);
	struct stat st;
	int r;

	if (fd < 0)
		return err_set(e, errno, "make a file for the system call filter");
	r = seccomp_export_bpf(ctx, fd);
	if (r)
		return err_set(e, -r, "compile the system call filter");
	if (fstat(fd, &st) < 0)
		return err_set(e, errno, "size of the system call filter");
	out->len = (unsigned short)(st.st_size / sizeof(*out->filter));
	out->filter = malloc((size_t)st.st_size);
	if (!out->filter)
		return err_set(e, ENOMEM, "hold the system call filter");
	if (pread(fd, out->filter, (size_t)st.st_size, 0) != st.st_size)
		return err_set(e, EIO, "read the system call filter");
	return 0;
}

static int compile(struct sock_fprog *out, const struct rule *rules, size_t count, bool fill,
		   struct err *e)
{
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_KILL_PROCESS);
	int r;

	if (!ctx)
		return err_set(e, ENOMEM, "make a system call filter");
	/* A binary tree instead of a chain: a vCPU thread's calls are all hot. */
	r = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2);
	if (r)
		err_set(e, -r, "order the system call filter");
	if (!r)
		r = add_rules(ctx, both_rules, ARRAY_LEN(both_rules), e);
	if (!r && fill)
		r = add_rules(ctx, fill_rules, ARRAY_LEN(fill_rules), e);
	if (!r)
		r = add_rules(ctx, rules, count, e);
	if (!r)
		r = export(ctx, out, e);
	seccomp_release(ctx);
	return r;
}

static int compile_stages(struct stages *out, const struct rule *rules, size_t count, struct err *e)
{
	int r = compile(&out->fill, rules, count, true, e);

	return r ? r : compile(&out->run, rules, count, false, e);
}

static int drop(struct err *e)
{
	struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {{0}};

	if (syscall(SYS_capset, &h, none) < 0)
		return err_set(e, errno, "give capabilities up");
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return err_set(e, errno, "set no_new_privs");
	return 0;
}

int confine_new(struct confine **out, struct err *e)
{
	struct confine *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return err_set(e, ENOMEM, "confine the process");
	r = drop(e);
	if (!r)
		r = compile_stages(&c->vcpu, vcpu_rules, ARRAY_LEN(vcpu_rules), e);
	if (!r)
		r = compile_stages(&c->loop, loop_rules, ARRAY_LEN(loop_rules), e);
	if (r) {
		confine_free(c);
		return r;
	}
	*out = c;
	return 0;
}

void confine_free(struct confine *c)
{
	if (!c)
		return;
	free(c->vcpu.fill.filter);
	free(c->vcpu.run.filter);
	free(c->loop.fill.filter);
	free(c->loop.run.filter);
	free(c);
}

static int load(const struct sock_fprog *program, struct err *e)
{
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_LOG, program) < 0)
		return err_set(e, errno, "install the system call filter");
	return 0;
}

int confine_vcpu(struct confine *c, struct err *e)
{
	return load(&c->vcpu.fill, e);
}

int confine_loop(struct confine *c, struct err *e)
{
	return load(&c->loop.fill, e);
}

int confine_running_vcpu(struct confine *c, struct err *e)
{
	return load(&c->vcpu.run, e);
}

int confine_running_loop(struct confine *c, struct err *e)
{
	return load(&c->loop.run, e);
}
