// SPDX-License-Identifier: Apache-2.0
#include "vmm/state/state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/file.h"
#include "vmm/dev/generation.h"
#include "vmm/dev/cmos.h"
#include "vmm/virtio/device.h"

/*
 * Room for the CMOS clock, the working set and all devices. The working set is limited to 33 KiB,
 * the others together need a few hundred bytes.
 */
#define PARTS_BYTES (64u << 10)

/* Room in a state file for its header and the headers of the sections. */
#define FRAME_BYTES 4096

/*
 * State that was read but not written yet: vCPUs and chips in KVM's structures, the rest as
 * sections.
 */
struct state_capture {
	struct state_parts parts;
	struct vm_state vm;
	struct wire sections;
	uint8_t bytes[PARTS_BYTES];
	struct vcpu_state vcpus[];
};

int state_capture_new(struct state_capture **out, const struct state_parts *p, struct err *e)
{
	size_t vcpus = p->kvm->nvcpus * sizeof(struct vcpu_state);
	struct state_capture *s = malloc(sizeof(*s) + vcpus);

	if (!s)
		return err_set(e, ENOMEM, "save the VM's state");
	/* Also touches the pages, so that the pause does not have to wait for them. */
	memset(s, 0, sizeof(*s) + vcpus);
	s->parts = *p;
	*out = s;
	return 0;
}

void state_capture_free(struct state_capture *s)
{
	free(s);
}

static void put_devices(const struct state_parts *p, struct wire *w)
{
	size_t mark = state_section_begin(w, STATE_CMOS);

	cmos_save(p->cmos, w);
	state_section_end(w, mark);
	mark = state_section_begin(w, STATE_GENERATION);
	generation_save(p->generation, w);
	state_section_end(w, mark);
	mark = state_section_begin(w, STATE_WORKING_SET);
	working_set_write(w, p->working_set);
	state_section_end(w, mark);
	for (unsigned i = 0; i < p->ndevices; i++) {
		mark = state_section_begin(w, STATE_DEVICE + i);
		vio_mmio_save(p->devices[i], w);
		state_section_end(w, mark);
	}
}

int state_capture_take(struct state_capture *s, struct err *e)
{
	const struct state_parts *p = &s->parts;
	int r = vm_state_get(p->kvm, &s->vm, e);

	for (unsigned i = 0; !r && i < p->kvm->nvcpus; i++)
		r = vcpu_state_get(p->kvm, i, &s->vcpus[i], e);
	s->sections = wire_on(s->bytes, sizeof(s->bytes));
	put_devices(p, &s->sections);
	return r;
}

static void put_kvm(const struct state_capture *s, struct wire *w)
{
	size_t mark = state_section_begin(w, STATE_VM);

	vm_state_write(w, &s->vm);
	state_section_end(w, mark);
	for (unsigned i = 0; i < s->parts.kvm->nvcpus; i++) {
		mark = state_section_begin(w, STATE_VCPU + i);
		vcpu_state_write(w, &s->vcpus[i]);
		state_section_end(w, mark);
	}
}

int state_capture_write(struct state_capture *s, int fd, struct err *e)
{
	unsigned vcpus = s->parts.kvm->nvcpus;
	size_t room = sizeof(s->vm) + vcpus * sizeof(s->vcpus[0]) + s->sections.pos + FRAME_BYTES;
	scoped_free uint8_t *buf = malloc(room);
	struct wire w;
	int64_t bytes;

	if (!buf)
		return err_set(e, ENOMEM, "save the VM's state");
	state_begin(&w, buf, room, vcpus, s->parts.ram_mib);
	put_kvm(s, &w);
	wire_put_bytes(&w, s->bytes, s->sections.pos);
	w.bad |= s->sections.bad;
	bytes = state_finish(&w, e);
	if (bytes < 0)
		return (int)bytes;
	if (file_write(fd, 0, buf, (uint64_t)bytes, e))
		return err_context(e, "the state file");
	return 0;
}
