// SPDX-License-Identifier: Apache-2.0
#include "vmm/kvm/working-set.h"

#include <stdbool.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "vmm/kvm/new-ioctls.h"

void working_set_free(struct working_set *w)
{
	extents_free(&w->used);
	extents_free(&w->written);
}

static void pre_fault(int vcpu_fd, uint64_t offset, uint64_t bytes)
{
	struct kvm_pre_fault_memory left = {.gpa = gm_addr(offset), .size = bytes};

	while (left.size && ioctl(vcpu_fd, KVM_PRE_FAULT_MEMORY, &left) == 0) {
	}
}

/* An extent may have parts on both sides of the hole in guest physical addresses. */
static void pre_fault_extent(int vcpu_fd, const struct extent *x)
{
	uint64_t end = x->offset + x->bytes;
	uint64_t edge = x->offset < GM_HOLE_START && end > GM_HOLE_START ? GM_HOLE_START : end;

	pre_fault(vcpu_fd, x->offset, edge - x->offset);
	pre_fault(vcpu_fd, edge, end - edge);
}

void working_set_map(const struct working_set *w, const struct gm *m, int vcpu_fd, unsigned part,
		     unsigned parts)
{
	uint32_t next = 0;

	for (uint32_t i = 0; i < w->used.n; i++) {
		const struct extent *x = &w->used.extent[i];
		bool mine = i % parts == part;

		/* Copies first: a page that is pre-faulted before its copy exists faults again. */
		for (; next < w->written.n; next++) {
			const struct extent *copy = &w->written.extent[next];

			if (copy->offset >= x->offset + x->bytes)
				break;
			if (mine)
				madvise(m->base + copy->offset, copy->bytes, MADV_POPULATE_WRITE);
		}
		if (mine)
			pre_fault_extent(vcpu_fd, x);
	}
}
