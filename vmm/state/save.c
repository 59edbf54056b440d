// SPDX-License-Identifier: Apache-2.0
#include "vmm/state/state.h"

#include <errno.h>
#include <stdlib.h>

#include "base/fd.h"
#include "base/file.h"
#include "proto/image.h"
#include "vmm/dev/legacy.h"
#include "vmm/virtio/device.h"

static int put_vcpus(const struct state_parts *p, struct wire *w, struct err *e)
{
	scoped_free struct vcpu_state *s = calloc(1, sizeof(*s));

	if (!s)
		return err_set(e, ENOMEM, "save the vCPUs");
	for (unsigned i = 0; i < p->kvm->nvcpus; i++) {
		int r = vcpu_state_get(p->kvm, i, s, e);
		size_t mark;

		if (r)
			return r;
		mark = state_section_begin(w, STATE_VCPU + i, STATE_VCPU_VERSION);
		vcpu_state_write(w, s);
		state_section_end(w, mark);
	}
	return 0;
}

static int put_vm(const struct state_parts *p, struct wire *w, struct err *e)
{
	struct vm_state s;
	size_t mark;
	int r = vm_state_get(p->kvm, &s, e);

	if (r)
		return r;
	mark = state_section_begin(w, STATE_VM, STATE_VM_VERSION);
	vm_state_write(w, &s);
	state_section_end(w, mark);
	mark = state_section_begin(w, STATE_LEGACY, STATE_LEGACY_VERSION);
	legacy_save(p->legacy, w);
	state_section_end(w, mark);
	return 0;
}

static void put_devices(const struct state_parts *p, struct wire *w)
{
	for (unsigned i = 0; i < p->ndevices; i++) {
		size_t mark = state_section_begin(w, STATE_DEVICE + i, STATE_DEVICE_VERSION);

		vio_mmio_save(p->devices[i], w);
		state_section_end(w, mark);
	}
}

int state_save(const struct state_parts *p, int fd, struct err *e)
{
	scoped_free uint8_t *buf = malloc(IMAGE_STATE_MAX);
	struct wire w;
	int64_t bytes;
	int r;

	if (!buf)
		return err_set(e, ENOMEM, "save the VM's state");
	state_begin(&w, buf, IMAGE_STATE_MAX, p->kvm->nvcpus, p->ram_mib);
	r = put_vm(p, &w, e);
	if (!r)
		r = put_vcpus(p, &w, e);
	if (r)
		return r;
	put_devices(p, &w);
	bytes = state_finish(&w, e);
	if (bytes < 0)
		return (int)bytes;
	if (file_write(fd, 0, buf, (uint64_t)bytes, e))
		return err_context(e, "the state file");
	return 0;
}
