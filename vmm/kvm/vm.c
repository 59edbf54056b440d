// SPDX-License-Identifier: Apache-2.0
#include "vmm/kvm/vm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "base/fd.h"
#include "vmm/kvm/new-ioctls.h"

/*
 * Intel's VMX needs three pages for a task state segment and one for an identity map to run real
 * mode. They are in the hole below 4 GiB, clear of everything else there.
 */
#define TSS_ADDR	  0xfffbd000ul
#define IDENTITY_MAP_ADDR 0xfffbc000ull

static const struct {
	int cap;
	const char *name;
} needed_caps[] = {
	{KVM_CAP_IRQCHIP, "IRQCHIP"},
	{KVM_CAP_PIT2, "PIT2"},
	{KVM_CAP_IRQFD, "IRQFD"},
	{KVM_CAP_IOEVENTFD, "IOEVENTFD"},
	{KVM_CAP_USER_MEMORY, "USER_MEMORY"},
	{KVM_CAP_SET_TSS_ADDR, "SET_TSS_ADDR"},
	{KVM_CAP_EXT_CPUID, "EXT_CPUID"},
	{KVM_CAP_MP_STATE, "MP_STATE"},
	{KVM_CAP_VCPU_EVENTS, "VCPU_EVENTS"},
	{KVM_CAP_DEBUGREGS, "DEBUGREGS"},
	{KVM_CAP_XSAVE, "XSAVE"},
	{KVM_CAP_XCRS, "XCRS"},
	{KVM_CAP_ADJUST_CLOCK, "ADJUST_CLOCK"},
	{KVM_CAP_IMMEDIATE_EXIT, "IMMEDIATE_EXIT"},
};

static int check_caps(int fd, struct err *e)
{
	int version = ioctl(fd, KVM_GET_API_VERSION, 0);

	if (version < 0)
		return err_set(e, errno, "the descriptor given as --kvm-fd is not /dev/kvm");
	if (version != KVM_API_VERSION)
		return err_say(e, ENOTSUP, "KVM has interface version %d, not %d", version,
			       KVM_API_VERSION);
	for (size_t i = 0; i < ARRAY_LEN(needed_caps); i++)
		if (ioctl(fd, KVM_CHECK_EXTENSION, needed_caps[i].cap) <= 0)
			return err_say(e, ENOTSUP, "this host's KVM lacks KVM_CAP_%s",
				       needed_caps[i].name);
	return 0;
}

static int ask_limits(struct kvm_host *h, struct err *e)
{
	int run = ioctl(h->fd, KVM_GET_VCPU_MMAP_SIZE, 0);
	int xsave = ioctl(h->fd, KVM_CHECK_EXTENSION, KVM_CAP_XSAVE2);
	int vcpus = ioctl(h->fd, KVM_CHECK_EXTENSION, KVM_CAP_MAX_VCPUS);

	if (run < (int)sizeof(struct kvm_run))
		return err_say(e, ENOTSUP,
			       "KVM_GET_VCPU_MMAP_SIZE returned %d, at least %zu is needed", run,
			       sizeof(struct kvm_run));
	h->pre_faults = ioctl(h->fd, KVM_CHECK_EXTENSION, KVM_CAP_PRE_FAULT_MEMORY) > 0;
	h->run_bytes = run;
	h->xsave_bytes =
		xsave > (int)sizeof(struct kvm_xsave) ? (size_t)xsave : sizeof(struct kvm_xsave);
	if (h->xsave_bytes > KVM_XSAVE_MAX)
		return err_say(e, ENOTSUP, "a vCPU's extended state has %zu bytes, the limit is %d",
			       h->xsave_bytes, KVM_XSAVE_MAX);
	/* 4: the default that KVM's documentation gives */
	h->vcpus_max = vcpus > 0 ? (unsigned)vcpus : 4;
	return 0;
}

static int ask_cpuid(struct kvm_host *h, struct err *e)
{
	h->supported.nent = KVM_CPUID_MAX;
	if (ioctl(h->fd, KVM_GET_SUPPORTED_CPUID, &h->supported) < 0)
		return err_set(e, errno, "ask KVM which CPUID leaves it supports");
	return 0;
}

int kvm_host_init(struct kvm_host *h, int kvm_fd, struct err *e)
{
	int r;

	*h = (struct kvm_host){.fd = kvm_fd};
	r = check_caps(kvm_fd, e);
	if (!r)
		r = ask_limits(h, e);
	if (!r)
		r = ask_cpuid(h, e);
	if (!r)
		r = msrs_choose(h->fd, h->msrs, &h->nmsrs, e);
	return r;
}

static int create_vm(int kvm_fd, struct err *e)
{
	int fd;

	/*
	 * KVM_CREATE_VM fails with EINTR if a signal arrives while the kernel waits for its own
	 * threads.
	 */
	do {
		fd = ioctl(kvm_fd, KVM_CREATE_VM, 0);
	} while (fd < 0 && errno == EINTR);
	return fd < 0 ? err_set(e, errno, "create a KVM VM") : fd;
}

static int create_chips(int fd, struct err *e)
{
	/*
	 * Lets KVM serve port 0x61, which guest kernels read when they calibrate clocks with the
	 * timer.
	 */
	struct kvm_pit_config pit = {.flags = KVM_PIT_SPEAKER_DUMMY};
	uint64_t identity = IDENTITY_MAP_ADDR;

	if (ioctl(fd, KVM_SET_TSS_ADDR, TSS_ADDR) < 0)
		return err_set(e, errno, "set the TSS address");
	if (ioctl(fd, KVM_SET_IDENTITY_MAP_ADDR, &identity) < 0)
		return err_set(e, errno, "set the identity map address");
	if (ioctl(fd, KVM_CREATE_IRQCHIP, 0) < 0)
		return err_set(e, errno, "create the interrupt controllers");
	if (ioctl(fd, KVM_CREATE_PIT2, &pit) < 0)
		return err_set(e, errno, "create the timer");
	return 0;
}

static int add_slot(int fd, uint32_t slot, uint64_t addr, uint8_t *host, uint64_t bytes,
		    struct err *e)
{
	struct kvm_userspace_memory_region r = {
		.slot = slot,
		.guest_phys_addr = addr,
		.memory_size = bytes,
		.userspace_addr = (uintptr_t)host,
	};

	if (ioctl(fd, KVM_SET_USER_MEMORY_REGION, &r) < 0)
		return err_set(e, errno, "map memory slot %u (%llu MiB)", slot,
			       (unsigned long long)(bytes >> 20));
	return 0;
}

/* Uses at most two slots: KVM's own pages are in the hole below 4 GiB, which no slot may cross. */
static int add_memory(int fd, const struct gm *m, struct err *e)
{
	uint64_t low = m->bytes < GM_HOLE_START ? m->bytes : GM_HOLE_START;
	int r = add_slot(fd, 0, 0, m->base, low, e);

	if (!r && m->bytes > low)
		r = add_slot(fd, 1, GM_HIGH_START, m->base + low, m->bytes - low, e);
	return r;
}

static int create_vcpu(struct kvm_vm *vm, unsigned i, struct err *e)
{
	struct kvm_vcpu *c = &vm->vcpu[i];
	int khz;

	c->fd = ioctl(vm->fd, KVM_CREATE_VCPU, (unsigned long)i);
	if (c->fd < 0)
		return err_set(e, errno, "create vCPU %u", i);
	c->run = mmap(NULL, vm->host->run_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, c->fd, 0);
	if (c->run == MAP_FAILED)
		return err_set(e, errno, "map the kvm_run area of vCPU %u", i);
	khz = ioctl(c->fd, KVM_GET_TSC_KHZ, 0);
	c->tsc_khz = khz > 0 ? (uint32_t)khz : 0;
	return 0;
}

static int vm_build(struct kvm_vm *vm, const struct gm *mem, struct err *e)
{
	int r;

	vm->fd = create_vm(vm->host->fd, e);
	if (vm->fd < 0)
		return vm->fd;
	r = msrs_filter(vm->host->fd, vm->fd, e);
	if (!r)
		r = create_chips(vm->fd, e);
	if (!r)
		r = add_memory(vm->fd, mem, e);
	for (unsigned i = 0; !r && i < vm->nvcpus; i++)
		r = create_vcpu(vm, i, e);
	return r;
}

int kvm_vm_new(struct kvm_vm **out, const struct kvm_host *h, unsigned nvcpus, const struct gm *mem,
	       struct err *e)
{
	struct kvm_vm *vm;
	int r;

	if (!nvcpus || nvcpus > KVM_VCPUS_MAX || nvcpus > h->vcpus_max)
		return err_say(e, EINVAL, "%u vCPUs: this host's KVM supports 1 to %u", nvcpus,
			       h->vcpus_max < KVM_VCPUS_MAX ? h->vcpus_max : KVM_VCPUS_MAX);
	vm = calloc(1, sizeof(*vm));
	if (!vm)
		return err_set(e, ENOMEM, "create a KVM VM");
	vm->host = h;
	vm->nvcpus = nvcpus;
	r = vm_build(vm, mem, e);
	if (!r)
		*out = vm;
	return r;
}

int kvm_vcpu_set_cpuid(struct kvm_vcpu *c, const struct cpuid_list *cpuid, struct err *e)
{
	if (ioctl(c->fd, KVM_SET_CPUID2, cpuid) < 0)
		return err_set(e, errno, "set the vCPU's CPUID leaves");
	c->cpuid.nent = cpuid->nent;
	memcpy(c->cpuid.entries, cpuid->entries, cpuid->nent * sizeof(cpuid->entries[0]));
	return 0;
}

int kvm_vcpu_run(struct kvm_vcpu *c)
{
	return ioctl(c->fd, KVM_RUN, 0) < 0 ? -errno : 0;
}

void kvm_vcpu_clock_stopped(struct kvm_vcpu *c)
{
	/* EINVAL means that the guest does not use KVM's clock and needs no notice. */
	ioctl(c->fd, KVM_KVMCLOCK_CTRL, 0);
}
