// SPDX-License-Identifier: Apache-2.0
/*
 * The working set of a guest: the pages of RAM that it uses from when it resumes until it has
 * answered a first call. Clones of a guest use mostly the same pages, and each costs a fault that
 * stops a vCPU. A restored VM therefore maps the recorded pages before it runs.
 */
#ifndef RAMET_VMM_KVM_WORKING_SET_H
#define RAMET_VMM_KVM_WORKING_SET_H

#include "vmm/kvm/extent-map.h"
#include "vmm/kvm/memory.h"

/* A larger set is not kept: it would take time and memory from VMs that never need its pages. */
#define WORKING_SET_BYTES_MAX	(32u << 20)
#define WORKING_SET_EXTENTS_MAX 2048u /* in each list */

/* {0} is an empty set. */
struct working_set {
	struct extents used;	/* the pages that the guest uses, and small gaps between them */
	struct extents written; /* the part of `used` that the guest writes */
};

void working_set_free(struct working_set *w);

/*
 * Maps one part of the set; parts are numbered from 0. Gives this process its own copy of the pages
 * that will be written, then pre-faults all pages in KVM's page tables for the VM that `vcpu_fd`
 * belongs to. Called on the vCPU's thread, after its state is set and before it runs. What can't be
 * mapped is left to the guest's faults.
 */
void working_set_map(const struct working_set *w, const struct gm *m, int vcpu_fd, unsigned part,
		     unsigned parts);

#endif
