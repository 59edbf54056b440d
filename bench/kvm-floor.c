// SPDX-License-Identifier: Apache-2.0
/*
 * Measures the lower bound of every restore on this machine, which is the cost without a VMM:
 *   kvm_floor_ms   from a ready blank VM (VM, vCPUs, chips, and a slot over a PROT_NONE
 *                  reservation) to the first exit of the guest: maps the image, sets all state,
 *                  runs vCPU 0
 *   kvm_create_ms  creates such a blank VM
 *   warm_exit_us   one exit of a running guest
 * usage: kvm-floor [--ram-mib M] [--vcpus V] [--runs N]; prints JSON.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bench/stats.h"

#define VCPUS_MAX  32
#define CODE_ADDR  0x1000
#define PML4_ADDR  0x2000
#define PDPT_ADDR  0x3000
#define PD_ADDR	   0x4000
#define XSAVE_ROOM 16384
#define POOL	   8   /* blank VMs that are created before the first is restored */
#define WARM_EXITS 200 /* per run */

static const uint8_t guest_code[] = {
	0xe6, 0x80, /* again: out 0x80, al */
	0xeb, 0xfc, /* jmp again */
};

/* State of a vCPU in long mode, as an image contains it. */
static const uint32_t msr_list[] = {
	0x10,	    0x174,	0x175,	    0x176,	0x277,	    0x6e0,	0xc0000081,
	0xc0000082, 0xc0000083, 0xc0000084, 0xc0000102, 0x4b564d00, 0x4b564d01,
};
#define MSRS (sizeof(msr_list) / sizeof(msr_list[0]))

struct vcpu_state {
	struct kvm_mp_state mp_state;
	struct kvm_sregs sregs;
	struct kvm_regs regs;
	struct kvm_xcrs xcrs;
	struct kvm_debugregs debugregs;
	struct kvm_lapic_state lapic;
	struct kvm_vcpu_events events;
	struct {
		struct kvm_msrs head;
		struct kvm_msr_entry entries[MSRS];
	} msrs;
	uint8_t xsave[XSAVE_ROOM] __attribute__((aligned(64)));
};

struct vm_state {
	struct kvm_irqchip chips[3];
	struct kvm_pit_state2 pit;
	struct kvm_clock_data clock;
	struct vcpu_state vcpu[VCPUS_MAX];
};

struct vmproc {
	int fd;
	int vcpu[VCPUS_MAX];
	struct kvm_run *run; /* of vCPU 0 */
	uint8_t *mem;
};

static int kvm_fd, run_bytes;
static unsigned vcpus = 1;
static size_t ram_bytes = 256u << 20;
static struct {
	uint32_t nent, padding;
	struct kvm_cpuid_entry2 entries[256];
} cpuid;

static void fail(const char *what)
{
	fprintf(stderr, "kvm-floor: %s: %s\n", what, strerror(errno));
	exit(EXIT_FAILURE);
}

static int call(int fd, unsigned long request, const void *arg, const char *what)
{
	int r;

	do {
		r = ioctl(fd, request, arg);
	} while (r < 0 && errno == EINTR);
	if (r < 0)
		fail(what);
	return r;
}

static void *map(void *at, size_t len, int prot, int flags, int fd, const char *what)
{
	void *p = mmap(at, len, prot, flags, fd, 0);

	if (p == MAP_FAILED)
		fail(what);
	return p;
}

static void vm_create(struct vmproc *vm)
{
	uint64_t identity = 0xfffbc000;
	struct kvm_pit_config pit = {.flags = KVM_PIT_SPEAKER_DUMMY};
	struct kvm_userspace_memory_region slot = {
		.memory_size = ram_bytes,
		.userspace_addr = (uintptr_t)vm->mem,
	};

	vm->fd = call(kvm_fd, KVM_CREATE_VM, NULL, "KVM_CREATE_VM");
	call(vm->fd, KVM_SET_TSS_ADDR, (void *)0xfffbd000, "KVM_SET_TSS_ADDR");
	call(vm->fd, KVM_SET_IDENTITY_MAP_ADDR, &identity, "KVM_SET_IDENTITY_MAP_ADDR");
	call(vm->fd, KVM_CREATE_IRQCHIP, NULL, "KVM_CREATE_IRQCHIP");
	call(vm->fd, KVM_CREATE_PIT2, &pit, "KVM_CREATE_PIT2");
	call(vm->fd, KVM_SET_USER_MEMORY_REGION, &slot, "KVM_SET_USER_MEMORY_REGION");
	for (unsigned i = 0; i < vcpus; i++) {
		vm->vcpu[i] =
			call(vm->fd, KVM_CREATE_VCPU, (void *)(uintptr_t)i, "KVM_CREATE_VCPU");
		call(vm->vcpu[i], KVM_SET_CPUID2, &cpuid, "KVM_SET_CPUID2");
	}
	vm->run = map(NULL, run_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, vm->vcpu[0], "kvm_run");
}

static void vm_destroy(struct vmproc *vm)
{
	munmap(vm->run, run_bytes);
	for (unsigned i = 0; i < vcpus; i++)
		close(vm->vcpu[i]);
	close(vm->fd);
	munmap(vm->mem, ram_bytes);
}

static void run_to_exit(struct vmproc *vm)
{
	call(vm->vcpu[0], KVM_RUN, NULL, "KVM_RUN");
	if (vm->run->exit_reason == KVM_EXIT_IO)
		return;
	fprintf(stderr, "kvm-floor: the guest stopped with exit %u\n", vm->run->exit_reason);
	exit(EXIT_FAILURE);
}

static void get_vcpu(int fd, struct vcpu_state *s)
{
	call(fd, KVM_GET_MP_STATE, &s->mp_state, "KVM_GET_MP_STATE");
	call(fd, KVM_GET_SREGS, &s->sregs, "KVM_GET_SREGS");
	call(fd, KVM_GET_REGS, &s->regs, "KVM_GET_REGS");
	call(fd, KVM_GET_XCRS, &s->xcrs, "KVM_GET_XCRS");
	call(fd, KVM_GET_XSAVE, s->xsave, "KVM_GET_XSAVE");
	call(fd, KVM_GET_DEBUGREGS, &s->debugregs, "KVM_GET_DEBUGREGS");
	call(fd, KVM_GET_LAPIC, &s->lapic, "KVM_GET_LAPIC");
	s->msrs.head.nmsrs = MSRS;
	for (size_t i = 0; i < MSRS; i++)
		s->msrs.entries[i].index = msr_list[i];
	s->msrs.head.nmsrs = (uint32_t)call(fd, KVM_GET_MSRS, &s->msrs, "KVM_GET_MSRS");
	call(fd, KVM_GET_VCPU_EVENTS, &s->events, "KVM_GET_VCPU_EVENTS");
}

static void set_vcpu(int fd, const struct vcpu_state *s)
{
	call(fd, KVM_SET_MP_STATE, &s->mp_state, "KVM_SET_MP_STATE");
	call(fd, KVM_SET_SREGS, &s->sregs, "KVM_SET_SREGS");
	call(fd, KVM_SET_REGS, &s->regs, "KVM_SET_REGS");
	call(fd, KVM_SET_XCRS, &s->xcrs, "KVM_SET_XCRS");
	call(fd, KVM_SET_XSAVE, s->xsave, "KVM_SET_XSAVE");
	call(fd, KVM_SET_DEBUGREGS, &s->debugregs, "KVM_SET_DEBUGREGS");
	call(fd, KVM_SET_LAPIC, &s->lapic, "KVM_SET_LAPIC");
	call(fd, KVM_SET_MSRS, &s->msrs, "KVM_SET_MSRS");
	call(fd, KVM_SET_VCPU_EVENTS, &s->events, "KVM_SET_VCPU_EVENTS");
}

static void get_state(const struct vmproc *vm, struct vm_state *s)
{
	for (unsigned i = 0; i < vcpus; i++)
		get_vcpu(vm->vcpu[i], &s->vcpu[i]);
	for (uint32_t i = 0; i < 3; i++) {
		s->chips[i].chip_id = i;
		call(vm->fd, KVM_GET_IRQCHIP, &s->chips[i], "KVM_GET_IRQCHIP");
	}
	call(vm->fd, KVM_GET_PIT2, &s->pit, "KVM_GET_PIT2");
	call(vm->fd, KVM_GET_CLOCK, &s->clock, "KVM_GET_CLOCK");
	s->clock.flags = 0;
}

static void set_state(const struct vmproc *vm, const struct vm_state *s)
{
	for (unsigned i = 0; i < vcpus; i++)
		set_vcpu(vm->vcpu[i], &s->vcpu[i]);
	for (uint32_t i = 0; i < 3; i++)
		call(vm->fd, KVM_SET_IRQCHIP, &s->chips[i], "KVM_SET_IRQCHIP");
	call(vm->fd, KVM_SET_PIT2, &s->pit, "KVM_SET_PIT2");
	call(vm->fd, KVM_SET_CLOCK, &s->clock, "KVM_SET_CLOCK");
}

static void reserve(struct vmproc *vm)
{
	vm->mem = map(NULL, ram_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
		      "reserve address space");
}

/* Sets the state of 64-bit mode with page tables, as a kernel has it: the guest's first instruction
 * costs a page walk. */
static void enter_long_mode(struct vmproc *vm, struct kvm_sregs *s, struct kvm_regs *r)
{
	const struct kvm_segment code = {
		.limit = ~0u, .selector = 0x10, .type = 0xb, .present = 1, .s = 1, .l = 1, .g = 1};
	const struct kvm_segment data = {
		.limit = ~0u, .selector = 0x18, .type = 0x3, .present = 1, .s = 1, .db = 1, .g = 1};

	*(uint64_t *)(vm->mem + PML4_ADDR) = PDPT_ADDR | 0x3; /* present, writable */
	*(uint64_t *)(vm->mem + PDPT_ADDR) = PD_ADDR | 0x3;
	*(uint64_t *)(vm->mem + PD_ADDR) = 0x83; /* and large */
	memcpy(vm->mem + CODE_ADDR, guest_code, sizeof(guest_code));
	s->cs = code;
	s->ds = s->es = s->fs = s->gs = s->ss = data;
	s->cr3 = PML4_ADDR;
	s->cr4 = 0x20;	     /* PAE */
	s->cr0 = 0x80000031; /* PG, NE, ET, PE */
	s->efer = 0x500;     /* LMA, LME */
	*r = (struct kvm_regs){.rip = CODE_ADDR, .rflags = 0x2};
}

/* Runs a guest for two exits. Returns its memory file as the image, and stores its state in *s. */
static int make_image(struct vmproc *vm, struct vm_state *s)
{
	int image = memfd_create("image", MFD_CLOEXEC);

	if (image < 0 || ftruncate(image, (off_t)ram_bytes) < 0)
		fail("image file");
	reserve(vm);
	map(vm->mem, ram_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, image, "image");
	vm_create(vm);
	get_vcpu(vm->vcpu[0], &s->vcpu[0]);
	enter_long_mode(vm, &s->vcpu[0].sregs, &s->vcpu[0].regs);
	call(vm->vcpu[0], KVM_SET_SREGS, &s->vcpu[0].sregs, "KVM_SET_SREGS");
	call(vm->vcpu[0], KVM_SET_REGS, &s->vcpu[0].regs, "KVM_SET_REGS");
	run_to_exit(vm);
	run_to_exit(vm);
	get_state(vm, s);
	return image;
}

static void fill(struct vmproc *vm, int image, const struct vm_state *s, struct samples *floor_ms)
{
	uint64_t start = bench_now_ns();

	map(vm->mem, ram_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE,
	    image, "map the image");
	set_state(vm, s);
	run_to_exit(vm);
	samples_add(floor_ms, bench_ms_since(start));
}

static void run_warm(struct vmproc *vm, struct samples *warm_us)
{
	uint64_t start = bench_now_ns();

	for (unsigned i = 0; i < WARM_EXITS; i++)
		run_to_exit(vm);
	samples_add(warm_us, bench_ms_since(start) * 1e3 / WARM_EXITS);
}

/*
 * In the service, blank VMs wait in a pool before they are restored, while other VMs run. Here POOL
 * of them are created first, so that none is restored while its state is still loaded in the CPU.
 */
static void measure(unsigned n, int image, const struct vm_state *s, struct samples *floor_ms,
		    struct samples *create_ms, struct samples *warm_us)
{
	struct vmproc pool[POOL];

	for (unsigned i = 0; i < n; i++) {
		uint64_t start;

		reserve(&pool[i]);
		start = bench_now_ns();
		vm_create(&pool[i]);
		samples_add(create_ms, bench_ms_since(start));
	}
	for (unsigned i = 0; i < n; i++)
		fill(&pool[i], image, s, floor_ms);
	for (unsigned i = 0; i < n; i++) {
		run_warm(&pool[i], warm_us);
		vm_destroy(&pool[i]);
	}
}

static unsigned long number(const char *name, const char *text, unsigned long min,
			    unsigned long max)
{
	char *end;
	unsigned long v = text ? strtoul(text, &end, 10) : 0;

	if (text && *text && !*end && v >= min && v <= max)
		return v;
	fprintf(stderr, "kvm-floor: %s takes a number from %lu to %lu\n", name, min, max);
	exit(EXIT_FAILURE);
}

static unsigned read_arguments(int argc, char **argv)
{
	unsigned runs = 100;

	for (int i = 1; i < argc; i += 2) {
		if (!strcmp(argv[i], "--ram-mib"))
			ram_bytes = number(argv[i], argv[i + 1], 2, 3072) << 20;
		else if (!strcmp(argv[i], "--vcpus"))
			vcpus = (unsigned)number(argv[i], argv[i + 1], 1, VCPUS_MAX);
		else if (!strcmp(argv[i], "--runs"))
			runs = (unsigned)number(argv[i], argv[i + 1], 1, 100000);
		else {
			fprintf(stderr, "kvm-floor: \"%s\" is not an option\n", argv[i]);
			exit(EXIT_FAILURE);
		}
	}
	return runs;
}

int main(int argc, char **argv)
{
	unsigned runs = read_arguments(argc, argv);
	struct samples floor_ms = {0}, create_ms = {0}, warm_us = {0};
	struct vm_state *state = calloc(1, sizeof(*state));
	struct vmproc first; /* stays open: closing the last VM would switch virtualization off */
	int image;

	kvm_fd = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	if (kvm_fd < 0)
		fail("/dev/kvm");
	if (!state)
		fail("memory");
	run_bytes = call(kvm_fd, KVM_GET_VCPU_MMAP_SIZE, NULL, "KVM_GET_VCPU_MMAP_SIZE");
	cpuid.nent = 256;
	call(kvm_fd, KVM_GET_SUPPORTED_CPUID, &cpuid, "KVM_GET_SUPPORTED_CPUID");
	image = make_image(&first, state);
	for (unsigned done = 0; done < runs; done += POOL)
		measure(runs - done < POOL ? runs - done : POOL, image, state, &floor_ms,
			&create_ms, &warm_us);
	printf("{");
	samples_print(&floor_ms, "kvm_floor_ms", "ms", stdout);
	printf(", ");
	samples_print(&create_ms, "kvm_create_ms", "ms", stdout);
	printf(", ");
	samples_print(&warm_us, "warm_exit_us", "us", stdout);
	printf("}\n");
	samples_free(&floor_ms);
	samples_free(&create_ms);
	samples_free(&warm_us);
	free(state);
	return EXIT_SUCCESS;
}
