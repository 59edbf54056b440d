// SPDX-License-Identifier: Apache-2.0
/*
 * The parts of KVM's structures that are in a snapshot. One list of them serves writing and
 * reading, so the two can't differ. The structures are an interface of the kernel, which keeps
 * their layout, and a state file has the byte order of x86; runs of members are therefore copied as
 * they are, without padding and reserved members. A change to a list needs a new
 * IMAGE_STATE_VERSION.
 */
#include "vmm/state/state.h"

#include <errno.h>
#include <string.h>

#include "base/fd.h"

struct fields {
	struct wire *w;
	bool reading;
};

static void f_bytes(struct fields *f, void *p, size_t len)
{
	if (f->reading)
		wire_get_bytes(f->w, p, len);
	else
		wire_put_bytes(f->w, p, len);
}

static void f_u32(struct fields *f, uint32_t *v)
{
	f_bytes(f, v, sizeof(*v));
}

/* A field with the number of items that follow. A number above `max` is an error. */
static void f_count(struct fields *f, uint32_t *n, uint32_t max)
{
	f_u32(f, n);
	if (*n > max) {
		f->w->bad = true;
		*n = 0;
	}
}

static void f_sregs(struct fields *f, struct kvm_sregs *s)
{
	struct kvm_segment *const segments[] = {&s->cs, &s->ds, &s->es, &s->fs,
						&s->gs, &s->ss, &s->tr, &s->ldt};
	struct kvm_dtable *const tables[] = {&s->gdt, &s->idt};

	for (size_t i = 0; i < ARRAY_LEN(segments); i++)
		f_bytes(f, segments[i], offsetof(struct kvm_segment, padding));
	for (size_t i = 0; i < ARRAY_LEN(tables); i++)
		f_bytes(f, tables[i], offsetof(struct kvm_dtable, padding));
	/* The control registers, EFER, the APIC's base, and the bitmap of a pending interrupt. */
	f_bytes(f, &s->cr0, sizeof(*s) - offsetof(struct kvm_sregs, cr0));
}

static void f_xcrs(struct fields *f, struct kvm_xcrs *x)
{
	f_count(f, &x->nr_xcrs, KVM_MAX_XCRS);
	f_u32(f, &x->flags);
	for (uint32_t i = 0; i < x->nr_xcrs; i++) {
		f_u32(f, &x->xcrs[i].xcr);
		f_bytes(f, &x->xcrs[i].value, sizeof(x->xcrs[i].value));
	}
}

static void f_events(struct fields *f, struct kvm_vcpu_events *v)
{
	f_bytes(f, v, offsetof(struct kvm_vcpu_events, nmi.pad));
	f_bytes(f, &v->sipi_vector,
		offsetof(struct kvm_vcpu_events, reserved) -
			offsetof(struct kvm_vcpu_events, sipi_vector));
	f_bytes(f, &v->exception_has_payload, sizeof(v->exception_has_payload));
	f_bytes(f, &v->exception_payload, sizeof(v->exception_payload));
}

static void f_cpuid(struct fields *f, struct cpuid_list *c)
{
	f_count(f, &c->nent, KVM_CPUID_MAX);
	for (uint32_t i = 0; i < c->nent; i++)
		f_bytes(f, &c->entries[i], offsetof(struct kvm_cpuid_entry2, padding));
}

static void f_msrs(struct fields *f, struct kvm_msr_values *m)
{
	f_count(f, &m->nmsrs, KVM_MSRS_MAX);
	for (uint32_t i = 0; i < m->nmsrs; i++) {
		f_u32(f, &m->entries[i].index);
		f_bytes(f, &m->entries[i].data, sizeof(m->entries[i].data));
	}
}

static void f_vcpu(struct fields *f, struct vcpu_state *s)
{
	f_cpuid(f, &s->cpuid);
	f_u32(f, &s->tsc_khz);
	f_u32(f, &s->mp_state.mp_state);
	f_sregs(f, &s->sregs);
	f_bytes(f, &s->regs, sizeof(s->regs));
	f_xcrs(f, &s->xcrs);
	f_bytes(f, &s->debugregs, offsetof(struct kvm_debugregs, reserved));
	f_bytes(f, s->lapic.regs, sizeof(s->lapic.regs));
	f_msrs(f, &s->msrs);
	f_events(f, &s->events);
	f_count(f, &s->xsave_bytes, KVM_XSAVE_MAX);
	f_bytes(f, s->xsave.bytes, s->xsave_bytes);
}

static void f_vm(struct fields *f, struct vm_state *s)
{
	struct kvm_ioapic_state *ioapic = &s->chips[KVM_IRQCHIP_IOAPIC].chip.ioapic;

	for (uint32_t i = 0; i < ARRAY_LEN(s->chips); i++)
		s->chips[i].chip_id = i;
	f_bytes(f, &s->chips[KVM_IRQCHIP_PIC_MASTER].chip.pic, sizeof(struct kvm_pic_state));
	f_bytes(f, &s->chips[KVM_IRQCHIP_PIC_SLAVE].chip.pic, sizeof(struct kvm_pic_state));
	f_bytes(f, ioapic, offsetof(struct kvm_ioapic_state, pad));
	f_bytes(f, ioapic->redirtbl, sizeof(ioapic->redirtbl));
	/* Without count_load_time, a host time: KVM sets its own when the state is set. */
	for (size_t i = 0; i < ARRAY_LEN(s->pit.channels); i++)
		f_bytes(f, &s->pit.channels[i],
			offsetof(struct kvm_pit_channel_state, count_load_time));
	f_u32(f, &s->pit.flags);
	f_bytes(f, &s->clock_ns, sizeof(s->clock_ns));
}

void vcpu_state_write(struct wire *w, const struct vcpu_state *s)
{
	struct fields f = {.w = w};

	f_vcpu(&f, (struct vcpu_state *)(uintptr_t)s);
}

int vcpu_state_read(struct wire *r, struct vcpu_state *s, struct err *e)
{
	struct fields f = {.w = r, .reading = true};

	/*
	 * Clears everything except the two big arrays, of which only the parts that were read are
	 * used.
	 */
	memset(&s->mp_state, 0,
	       offsetof(struct vcpu_state, xsave) - offsetof(struct vcpu_state, mp_state));
	f_vcpu(&f, s);
	if (r->bad || wire_left(r))
		return err_say(e, EINVAL, "the state of the vCPU is malformed");
	return 0;
}

static void put_extents(struct wire *w, const struct extents *x)
{
	wire_put_u32(w, x->n);
	for (uint32_t i = 0; i < x->n; i++) {
		wire_put_u32(w, (uint32_t)(x->extent[i].offset / RAM_PAGE));
		wire_put_u32(w, (uint32_t)(x->extent[i].bytes / RAM_PAGE));
	}
}

static int get_extents(struct wire *r, struct extents *x, uint32_t ram_mib)
{
	uint64_t ram = (uint64_t)ram_mib << 20, end = 0, sum = 0;
	uint32_t n = wire_get_u32(r);
	int result = 0;

	for (uint32_t i = 0; i < n && !r->bad && !result; i++) {
		uint64_t offset = (uint64_t)wire_get_u32(r) * RAM_PAGE;
		uint64_t bytes = (uint64_t)wire_get_u32(r) * RAM_PAGE;

		sum += bytes;
		if (offset < end || !bytes || offset + bytes > ram || sum > WORKING_SET_BYTES_MAX ||
		    i == WORKING_SET_EXTENTS_MAX)
			r->bad = true;
		else
			result = extents_add(x, offset, bytes);
		end = offset + bytes;
	}
	return result;
}

void working_set_write(struct wire *w, const struct working_set *s)
{
	put_extents(w, &s->used);
	put_extents(w, &s->written);
}

int working_set_read(struct wire *r, struct working_set *s, uint32_t ram_mib, struct err *e)
{
	if (get_extents(r, &s->used, ram_mib) || get_extents(r, &s->written, ram_mib))
		return err_set(e, ENOMEM, "read the working set");
	if (r->bad || wire_left(r))
		return err_say(e, EINVAL, "the working set is malformed");
	return 0;
}

void vm_state_write(struct wire *w, const struct vm_state *s)
{
	struct vm_state copy = *s;
	struct fields f = {.w = w};

	f_vm(&f, &copy);
}

int vm_state_read(struct wire *r, struct vm_state *s, struct err *e)
{
	struct fields f = {.w = r, .reading = true};

	*s = (struct vm_state){0};
	f_vm(&f, s);
	if (r->bad || wire_left(r))
		return err_say(e, EINVAL, "the state of the VM's chips is malformed");
	return 0;
}
