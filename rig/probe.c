// SPDX-License-Identifier: Apache-2.0
/*
 * Tests whether the KVM of this machine can run a Linux kernel. Some KVMs run a
 * guest's user mode natively, but emulate its kernel mode, slowly and without
 * instructions that a kernel needs. The test runs tiny guests in ring 0, in each
 * CPU mode. Prints one line per finding. Exit status: 0: yes; 1: no; 2: the probe
 * failed.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define MEM_SIZE   (2u << 20)
#define PML4_AT	   0x1000u
#define PDPT_AT	   0x2000u
#define PD_AT	   0x3000u
#define IDT_AT	   0x4000u
#define DATA_AT	   0x6000u /* 64-byte aligned scratch, zeroed */
#define CODE_AT	   0x8000u
#define HANDLER_AT 0x9000u
#define STACK_AT   0xf000u
#define CODE64_SEL 0x08
#define LOOPS	   20000u
/* Emulated ring 0 runs 1 to 2 million instructions per second, native ring 0 a thousand times more.
 */
#define NATIVE_MIPS 50.0

enum mode { REAL16, PROT32, LONG64 };

struct test {
	const char *name;
	uint32_t feature; /* bit of CPUID leaf 1, ECX; 0: every CPU has it */
	enum mode mode;
	const uint8_t *code;
	size_t len;
};

#define CODE(...) (const uint8_t[]){__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__})

static const struct test tests[] = {
	/* mov $1, %ax; hlt */
	{"16-bit code", 0, REAL16, CODE(0xb8, 0x01, 0x00, 0xf4)},
	/* mov $1, %eax; hlt */
	{"32-bit code", 0, PROT32, CODE(0xb8, 0x01, 0x00, 0x00, 0x00, 0xf4)},
	/* mov $1, %eax; hlt */
	{"64-bit code", 0, LONG64, CODE(0xb8, 0x01, 0x00, 0x00, 0x00, 0xf4)},
	/* lock cmpxchg16b 0x6000; hlt */
	{"cmpxchg16b", 1u << 13, LONG64,
	 CODE(0xf0, 0x48, 0x0f, 0xc7, 0x0c, 0x25, 0x00, 0x60, 0x00, 0x00, 0xf4)},
	/* int3 to a handler that halts */
	{"int3", 0, LONG64, CODE(0xcc, 0x0f, 0x0b)},
	/* xor %edx, %edx; mov $7, %eax; xrstor 0x6000; hlt */
	{"xrstor", 1u << 26, LONG64,
	 CODE(0x31, 0xd2, 0xb8, 0x07, 0x00, 0x00, 0x00, 0x0f, 0xae, 0x2c, 0x25, 0x00, 0x60, 0x00,
	      0x00, 0xf4)},
	/* popcnt %rsp, %rax; hlt */
	{"popcnt", 1u << 23, LONG64, CODE(0xf3, 0x48, 0x0f, 0xb8, 0xc4, 0xf4)},
};

/* mov $LOOPS, %ecx; 1: dec %ecx; jnz 1b; hlt */
static const struct test loop_test = {
	"loop", 0, LONG64,
	CODE(0xb9, LOOPS & 0xff, LOOPS >> 8, 0x00, 0x00, 0xff, 0xc9, 0x75, 0xfc, 0xf4)};

static int kvm;
static struct kvm_cpuid2 *cpuid;

static void fatal(const char *what)
{
	printf("probe: %s: %s\n", what, strerror(errno));
	exit(2);
}

static void on_alarm(int sig)
{
	(void)sig; /* the signal is only sent to interrupt KVM_RUN */
}

static void read_cpuid(void)
{
	cpuid = calloc(1, sizeof(*cpuid) + 256 * sizeof(cpuid->entries[0]));
	if (!cpuid)
		fatal("memory");
	cpuid->nent = 256;
	if (ioctl(kvm, KVM_GET_SUPPORTED_CPUID, cpuid) < 0)
		fatal("KVM_GET_SUPPORTED_CPUID");
}

static uint32_t feature_bits(void)
{
	for (uint32_t i = 0; i < cpuid->nent; i++)
		if (cpuid->entries[i].function == 1)
			return cpuid->entries[i].ecx;
	return 0;
}

/* Writes an identity map of the first 2 MiB, and an IDT whose vector 3 leads to a hlt. */
static void fill_memory(uint8_t *mem, const struct test *t)
{
	uint64_t gate[2] = {(uint64_t)CODE64_SEL << 16 | HANDLER_AT | 0x8e00ull << 32, 0};
	uint64_t entry;

	entry = PDPT_AT | 3;
	memcpy(mem + PML4_AT, &entry, sizeof(entry));
	entry = PD_AT | 3;
	memcpy(mem + PDPT_AT, &entry, sizeof(entry));
	entry = 0x83; /* 2 MiB page, present, writable */
	memcpy(mem + PD_AT, &entry, sizeof(entry));
	memcpy(mem + IDT_AT + 3 * sizeof(gate), gate, sizeof(gate));
	/* The GDT after the IDT: null, 64-bit code. The interrupt reloads CS from it. */
	entry = 0x00209b0000000000ull;
	memcpy(mem + IDT_AT + 0x1000 + CODE64_SEL, &entry, sizeof(entry));
	mem[HANDLER_AT] = 0xf4;
	memcpy(mem + CODE_AT, t->code, t->len);
}

static void set_flat_segments(struct kvm_sregs *s, bool long_mode)
{
	struct kvm_segment seg = {.limit = 0xffffffff,
				  .selector = CODE64_SEL,
				  .present = 1,
				  .type = 11,
				  .s = 1,
				  .g = 1,
				  .db = !long_mode,
				  .l = long_mode};

	s->cs = seg;
	seg.type = 3;
	seg.selector = 0x10;
	seg.db = 1;
	seg.l = 0;
	s->ds = s->es = s->fs = s->gs = s->ss = seg;
}

static void set_mode(struct kvm_sregs *s, enum mode mode)
{
	if (mode == REAL16) {
		s->cs.base = s->cs.selector = 0;
		return;
	}
	set_flat_segments(s, mode == LONG64);
	s->cr0 |= 1; /* PE */
	s->gdt.base = IDT_AT + 0x1000;
	s->gdt.limit = 0x17;
	if (mode == PROT32)
		return;
	s->idt.base = IDT_AT;
	s->idt.limit = 0xfff;
	s->cr3 = PML4_AT;
	s->cr4 |= 1u << 5 | 1u << 9 | 1u << 10 | 1u << 18; /* PAE, OSFXSR, OSXMMEXCPT, OSXSAVE */
	s->cr0 |= 1u << 31 | 1u << 1 | 1u << 5;		   /* PG, MP, NE */
	s->efer |= 1u << 8 | 1u << 10;			   /* LME, LMA */
}

static void set_registers(int vcpu, enum mode mode)
{
	struct kvm_regs regs = {.rip = CODE_AT, .rsp = STACK_AT, .rflags = 2};
	struct kvm_xcrs xcrs = {.nr_xcrs = 1, .xcrs[0] = {.xcr = 0, .value = 7}};
	struct kvm_sregs sregs;

	if (ioctl(vcpu, KVM_GET_SREGS, &sregs) < 0)
		fatal("KVM_GET_SREGS");
	set_mode(&sregs, mode);
	if (ioctl(vcpu, KVM_SET_SREGS, &sregs) < 0)
		fatal("KVM_SET_SREGS");
	if (ioctl(vcpu, KVM_SET_REGS, &regs) < 0)
		fatal("KVM_SET_REGS");
	(void)ioctl(vcpu, KVM_SET_XCRS, &xcrs); /* a failure shows in the xrstor test */
}

static double now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* Runs the guest until it exits; returns true if it executed hlt. Sets *seconds to the time. */
static bool run_vcpu(int vcpu, const struct kvm_run *run, double *seconds, char *error,
		     size_t error_len)
{
	struct itimerval limit = {.it_value.tv_sec = 2}, off = {0};
	double began = now_s();
	int rc;

	setitimer(ITIMER_REAL, &limit, NULL);
	rc = ioctl(vcpu, KVM_RUN, 0);
	*seconds = now_s() - began;
	setitimer(ITIMER_REAL, &off, NULL);
	if (rc < 0) {
		snprintf(error, error_len, "%s",
			 errno == EINTR ? "still runs after 2 s" : strerror(errno));
		return false;
	}
	if (run->exit_reason == KVM_EXIT_HLT)
		return true;
	snprintf(error, error_len, "left with KVM exit reason %u", run->exit_reason);
	return false;
}

static bool run_test(const struct test *t, double *seconds, char *error, size_t error_len)
{
	int vm = ioctl(kvm, KVM_CREATE_VM, 0UL);
	int vcpu = vm < 0 ? -1 : ioctl(vm, KVM_CREATE_VCPU, 0UL);
	int run_size = ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0UL);
	struct kvm_userspace_memory_region region = {.memory_size = MEM_SIZE};
	struct kvm_run *run;
	uint8_t *mem;
	bool ok;

	if (vcpu < 0 || run_size < 0)
		fatal("create a VM");
	mem = mmap(NULL, MEM_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	run = mmap(NULL, (size_t)run_size, PROT_READ | PROT_WRITE, MAP_SHARED, vcpu, 0);
	if (mem == MAP_FAILED || run == MAP_FAILED)
		fatal("mmap");
	fill_memory(mem, t);
	region.userspace_addr = (uintptr_t)mem;
	if (ioctl(vm, KVM_SET_USER_MEMORY_REGION, &region) < 0)
		fatal("KVM_SET_USER_MEMORY_REGION");
	if (ioctl(vcpu, KVM_SET_CPUID2, cpuid) < 0)
		fatal("KVM_SET_CPUID2");
	set_registers(vcpu, t->mode);

	ok = run_vcpu(vcpu, run, seconds, error, error_len);
	munmap(run, (size_t)run_size);
	close(vcpu);
	close(vm);
	munmap(mem, MEM_SIZE);
	return ok;
}

static bool instructions_work(void)
{
	bool good = true;
	double seconds;
	char error[64];

	for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {
		const struct test *t = &tests[i];

		if (t->feature && !(feature_bits() & t->feature))
			continue;
		if (run_test(t, &seconds, error, sizeof(error)))
			continue;
		printf("%s in ring 0: %s\n", t->name, error);
		good = false;
	}
	return good;
}

static bool speed_is_native(void)
{
	double seconds, mips;
	char error[64];

	if (!run_test(&loop_test, &seconds, error, sizeof(error))) {
		printf("a loop in ring 0: %s\n", error);
		return false;
	}
	mips = 2.0 * LOOPS / seconds / 1e6;
	printf("ring 0 runs %.1f million instructions per second%s\n", mips,
	       mips < NATIVE_MIPS ? ": it is emulated" : "");
	return mips >= NATIVE_MIPS;
}

int main(void)
{
	struct sigaction sa = {.sa_handler = on_alarm};
	bool good;

	kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	if (kvm < 0) {
		printf("/dev/kvm cannot be opened: %s\nverdict: rig\n", strerror(errno));
		return 1;
	}
	sigaction(SIGALRM, &sa, NULL);
	read_cpuid();
	good = instructions_work();
	good = speed_is_native() && good;
	printf("verdict: %s\n", good ? "native" : "rig");
	return good ? 0 : 1;
}
