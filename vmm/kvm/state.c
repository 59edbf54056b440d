// SPDX-License-Identifier: Apache-2.0
#include "vmm/kvm/state.h"

#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>

#include "base/fd.h"
#include "base/log.h"
#include "vmm/kvm/msrs.h"

/* KVM_GET_XSAVE2 writes as much as the CPU has; the older KVM_GET_XSAVE always writes 4 KiB. */
#define GET_XSAVE(host)                                                                            \
	((host)->xsave_bytes > sizeof(struct kvm_xsave) ? KVM_GET_XSAVE2 : KVM_GET_XSAVE)

static int get(int fd, unsigned long request, void *out, const char *what, struct err *e)
{
	if (ioctl(fd, request, out) < 0)
		return err_set(e, errno, "read the %s", what);
	return 0;
}

static int set(int fd, unsigned long request, const void *in, const char *what, struct err *e)
{
	if (ioctl(fd, request, in) < 0)
		return err_set(e, errno, "set the %s", what);
	return 0;
}

/* KVM stops at the first register it does not have; the loop continues after that one. */
static int get_msrs(const struct kvm_vm *vm, int fd, struct kvm_msr_values *out, struct err *e)
{
	struct kvm_msr_values ask;
	unsigned next = 0;

	*out = (struct kvm_msr_values){0};
	while (next < vm->host->nmsrs) {
		int got;

		ask = (struct kvm_msr_values){.nmsrs = vm->host->nmsrs - next};
		for (unsigned i = 0; i < ask.nmsrs; i++)
			ask.entries[i].index = vm->host->msrs[next + i];
		got = ioctl(fd, KVM_GET_MSRS, &ask);
		if (got < 0 || (unsigned)got > ask.nmsrs)
			return err_set(e, errno, "read the model-specific registers");
		memcpy(&out->entries[out->nmsrs], ask.entries, got * sizeof(ask.entries[0]));
		out->nmsrs += got;
		next += got + 1;
	}
	return 0;
}

int vcpu_state_get(const struct kvm_vm *vm, unsigned i, struct vcpu_state *out, struct err *e)
{
	int fd = vm->vcpu[i].fd;

	/*
	 * Copies the leaves as they were set. Those that KVM returns reflect CR4, and would never
	 * compare equal to a blank VM's.
	 */
	out->cpuid = vm->vcpu[i].cpuid;
	out->xsave_bytes = vm->host->xsave_bytes;
	out->tsc_khz = vm->vcpu[i].tsc_khz;
	/*
	 * MP_STATE comes first: reading it delivers a pending INIT or SIPI, which changes the rest.
	 */
	if (get(fd, KVM_GET_MP_STATE, &out->mp_state, "run state", e) ||
	    get(fd, KVM_GET_REGS, &out->regs, "registers", e) ||
	    get(fd, KVM_GET_SREGS, &out->sregs, "special registers", e) ||
	    get(fd, KVM_GET_XCRS, &out->xcrs, "extended control registers", e) ||
	    get(fd, GET_XSAVE(vm->host), &out->xsave, "extended state", e) ||
	    get(fd, KVM_GET_DEBUGREGS, &out->debugregs, "debug registers", e) ||
	    get(fd, KVM_GET_LAPIC, &out->lapic, "local APIC", e) ||
	    get_msrs(vm, fd, &out->msrs, e) ||
	    get(fd, KVM_GET_VCPU_EVENTS, &out->events, "pending events", e))
		return err_context(e, "vCPU %u", i);
	return 0;
}

/*
 * Sets the leaves of a snapshot unless the vCPU has them already. A blank VM offers all that this
 * host has; a snapshot, for example one from another host, may need less.
 */
static int set_cpuid(struct kvm_vcpu *c, const struct cpuid_list *cpuid, struct err *e)
{
	int r;

	if (cpuid_same(cpuid, &c->cpuid))
		return 0;
	r = cpuid_check_within(cpuid, &c->cpuid, e);
	return r ? r : kvm_vcpu_set_cpuid(c, cpuid, e);
}

/*
 * True for the register whose write makes KVM store the boot time in guest memory. A guest reads it
 * only after a write of its own, so it is not restored.
 */
static bool is_request(uint32_t msr)
{
	return msr == MSR_KVM_WALL_CLOCK;
}

/*
 * KVM treats a TSC write within a second of the expected value as an attempt to synchronize vCPUs,
 * and ignores the value. For vCPU 0 a write of a distant value comes first, since the TSC of the
 * blank VM may be within a second of the snapshot's by chance.
 */
#define TSC_FAR (1ull << 40)

static int tsc_offset_ioctl(int fd, unsigned long request, uint64_t *offset)
{
	const struct kvm_device_attr attr = {
		.group = KVM_VCPU_TSC_CTRL, .attr = KVM_VCPU_TSC_OFFSET, .addr = (uintptr_t)offset};

	return ioctl(fd, request, &attr);
}

/*
 * Gives the vCPU the offset of vCPU 0, so that no time passes between their TSCs however late this
 * call comes. Returns false before Linux 5.16. There the vCPU's own TSC is written instead, which
 * KVM replaces by vCPU 0's if the two writes are within a second and the host's TSC is reliable.
 */
static bool follow_tsc(struct kvm_vm *vm, int fd)
{
	return vm->has_tsc_offset && !tsc_offset_ioctl(fd, KVM_SET_DEVICE_ATTR, &vm->tsc_offset);
}

static int set_msrs(struct kvm_vm *vm, unsigned vcpu, const struct kvm_msr_values *in,
		    struct err *e)
{
	struct {
		uint32_t nmsrs, pad;
		struct kvm_msr_entry entries[KVM_MSRS_MAX + 1];
	} m = {.nmsrs = 0};
	int fd = vm->vcpu[vcpu].fd;
	bool leads_tsc = !vcpu, follows_tsc = vcpu && follow_tsc(vm, fd);
	int done;

	for (unsigned i = 0; i < in->nmsrs; i++) {
		if (!msr_is_ours(in->entries[i].index))
			return err_say(e, EINVAL,
				       "model-specific register 0x%x can't be part of a snapshot",
				       in->entries[i].index);
		if (is_request(in->entries[i].index))
			continue;
		if (in->entries[i].index == MSR_TSC && follows_tsc)
			continue;
		/* The array has room for this additional entry, of which there is at most one. */
		if (in->entries[i].index == MSR_TSC && leads_tsc) {
			leads_tsc = false;
			m.entries[m.nmsrs].index = MSR_TSC;
			m.entries[m.nmsrs++].data = in->entries[i].data + TSC_FAR;
		}
		m.entries[m.nmsrs].index = in->entries[i].index;
		m.entries[m.nmsrs++].data = in->entries[i].data;
	}
	done = ioctl(fd, KVM_SET_MSRS, &m);
	if (done < 0)
		return err_set(e, errno, "set the model-specific registers");
	if ((unsigned)done < m.nmsrs)
		return err_say(e, EINVAL, "KVM refuses 0x%llx in model-specific register 0x%x",
			       (unsigned long long)m.entries[done].data, m.entries[done].index);
	if (!vcpu)
		vm->has_tsc_offset = !tsc_offset_ioctl(fd, KVM_GET_DEVICE_ATTR, &vm->tsc_offset);
	return 0;
}

/* Changes the rate only when the snapshot comes from a host whose TSC has another rate. */
static int set_tsc_khz(struct kvm_vcpu *c, uint32_t khz, struct err *e)
{
	if (!khz || khz == c->tsc_khz)
		return 0;
	if (ioctl(c->fd, KVM_SET_TSC_KHZ, (unsigned long)khz) < 0)
		return err_set(e, errno, "run the guest's TSC at %u kHz", khz);
	c->tsc_khz = khz;
	return 0;
}

/*
 * The order matters. CPUID limits the other state; the special registers contain the APIC base,
 * which decides how the local APIC is read; the local APIC's timer mode gives the TSC deadline
 * register its meaning; pending events come last, when the vCPU is complete.
 */
int vcpu_state_set(struct kvm_vm *vm, unsigned i, const struct vcpu_state *s, struct err *e)
{
	int fd = vm->vcpu[i].fd;

	if (s->xsave_bytes != vm->host->xsave_bytes)
		return err_say(e, ENOTSUP,
			       "vCPU %u: the snapshot has %u bytes of extended state, this CPU %zu",
			       i, s->xsave_bytes, vm->host->xsave_bytes);
	if (set_cpuid(&vm->vcpu[i], &s->cpuid, e) || set_tsc_khz(&vm->vcpu[i], s->tsc_khz, e) ||
	    set(fd, KVM_SET_MP_STATE, &s->mp_state, "run state", e) ||
	    set(fd, KVM_SET_SREGS, &s->sregs, "special registers", e) ||
	    set(fd, KVM_SET_REGS, &s->regs, "registers", e) ||
	    set(fd, KVM_SET_XCRS, &s->xcrs, "extended control registers", e) ||
	    set(fd, KVM_SET_XSAVE, &s->xsave, "extended state", e) ||
	    set(fd, KVM_SET_DEBUGREGS, &s->debugregs, "debug registers", e) ||
	    set(fd, KVM_SET_LAPIC, &s->lapic, "local APIC", e))
		return err_context(e, "vCPU %u", i);
	return 0;
}

int vcpu_state_finish(struct kvm_vm *vm, unsigned i, const struct vcpu_state *s, struct err *e)
{
	int fd = vm->vcpu[i].fd;

	if (set_msrs(vm, i, &s->msrs, e) ||
	    set(fd, KVM_SET_VCPU_EVENTS, &s->events, "pending events", e))
		return err_context(e, "vCPU %u", i);
	return 0;
}

int vm_state_get(const struct kvm_vm *vm, struct vm_state *out, struct err *e)
{
	struct kvm_clock_data clock = {0};

	for (uint32_t i = 0; i < ARRAY_LEN(out->chips); i++) {
		out->chips[i] = (struct kvm_irqchip){.chip_id = i};
		if (get(vm->fd, KVM_GET_IRQCHIP, &out->chips[i], "interrupt controllers", e))
			return e->code;
	}
	if (get(vm->fd, KVM_GET_PIT2, &out->pit, "timer", e) ||
	    get(vm->fd, KVM_GET_CLOCK, &clock, "clock", e))
		return e->code;
	out->clock_ns = clock.clock;
	out->tsc_stable = clock.flags & KVM_CLOCK_TSC_STABLE;
	return 0;
}

int vm_state_set(const struct kvm_vm *vm, const struct vm_state *s, struct err *e)
{
	struct kvm_clock_data clock = {.clock = s->clock_ns};

	for (size_t i = 0; i < ARRAY_LEN(s->chips); i++)
		if (set(vm->fd, KVM_SET_IRQCHIP, &s->chips[i], "interrupt controllers", e))
			return e->code;
	if (set(vm->fd, KVM_SET_PIT2, &s->pit, "timer", e) ||
	    set(vm->fd, KVM_SET_CLOCK, &clock, "clock", e))
		return e->code;
	return 0;
}

void vcpu_log_registers(const struct kvm_vm *vm, unsigned i)
{
	struct kvm_sregs s;
	struct kvm_regs r;

	if (ioctl(vm->vcpu[i].fd, KVM_GET_REGS, &r) < 0 ||
	    ioctl(vm->vcpu[i].fd, KVM_GET_SREGS, &s) < 0) {
		log_warn("vCPU %u: its registers can't be read", i);
		return;
	}
	log_info("vCPU %u: rip %llx rsp %llx rflags %llx cr0 %llx cr2 %llx cr3 %llx cr4 %llx "
		 "efer %llx cs %x:%llx rax %llx rbx %llx rcx %llx rdx %llx rsi %llx rdi %llx",
		 i, r.rip, r.rsp, r.rflags, s.cr0, s.cr2, s.cr3, s.cr4, s.efer, s.cs.selector,
		 s.cs.base, r.rax, r.rbx, r.rcx, r.rdx, r.rsi, r.rdi);
}
