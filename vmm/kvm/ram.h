// SPDX-License-Identifier: Apache-2.0
/*
 * Guest RAM consists of a memory file, memory layers over it (proto/image.h), and own pages: the
 * pages that the guest has written, which are private to this process. A freeze copies own pages
 * into one more layer, and may keep them as own pages; file and layers together are then a snapshot
 * of RAM at that moment. All functions are for the loop's thread.
 */
#ifndef RAMET_VMM_KVM_RAM_H
#define RAMET_VMM_KVM_RAM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "proto/ctl.h"
#include "vmm/kvm/memory.h"
#include "vmm/kvm/working-set.h"

struct ram;

/*
 * `gm` is a reservation (gm_reserve) and must outlive the RAM. Takes over `pagemap_fd`, this
 * process's own /proc/self/pagemap; with -1, a VM that runs on a snapshot can't be frozen.
 */
int ram_new(struct ram **out, struct gm *gm, int pagemap_fd, struct err *e);
void ram_free(struct ram *r);

/*
 * Back RAM, once: with a new memfd, mapped shared, or with a snapshot, mapped privately. The caller
 * keeps the snapshot's descriptors; they are duplicated.
 */
int ram_back_with_memfd(struct ram *r, struct err *e);
int ram_back_with_snapshot(struct ram *r, int memory_fd, const int *layers, unsigned n,
			   struct err *e);

/*
 * Starts to record the working set of a booted guest, which may run meanwhile. The first freeze
 * ends the recording. Returns 0, -EINVAL unless RAM is a memfd that was never frozen, or -ENOTSUP
 * when the kernel can't track writes.
 */
int ram_record(struct ram *r, struct err *e);
/*
 * Returns the working set, which `r` owns: the recorded one, or the one that the caller has stored
 * here with the snapshot. Empty if there is none.
 */
struct working_set *ram_working_set(struct ram *r);

/*
 * Copies pages ahead of the next freeze while the guest runs, when there are many or when many
 * `children` will map them. The freeze then copies only the pages written again, and compares the
 * rest. On failure RAM is as before.
 */
int ram_prepare(struct ram *r, unsigned children, struct err *e);
/*
 * Frees what ram_prepare and the freeze no longer need. Call it when the guest runs again, after
 * the freeze or instead of it.
 */
void ram_end_freeze(struct ram *r);

/*
 * Makes the current content of RAM part of a snapshot, which later writes of the guest do not
 * change. The vCPUs are paused and no I/O into RAM is in flight. The first time, a memfd becomes
 * the snapshot's memory file and nothing is copied. Later, the pages that differ from the snapshot
 * are copied into a new memory layer; if there are none, no layer is added. *copied is the number
 * of bytes copied, including those of ram_prepare. On failure RAM is as before.
 */
int ram_freeze(struct ram *r, uint64_t *copied, struct err *e);

/*
 * Lists the descriptors of the last freeze's snapshot: fds[0] is the memory file, then the layers,
 * oldest first. Returns their number. `r` keeps owning them.
 */
#define RAM_SNAPSHOT_FDS (1 + CTL_MEMORY_MAX)
unsigned ram_snapshot_fds(const struct ram *r, int fds[RAM_SNAPSHOT_FDS]);

/*
 * Frees the pages that lie entirely in this range, except those of a snapshot. Their content may
 * change: the guest does not use it. Returns 0 or -errno.
 */
int ram_discard(struct ram *r, uint64_t offset, uint64_t bytes);

/*
 * Does about 100 us of the work that keeps the chain of layers short. Returns true while more is to
 * be done. Call it between freezes, while the guest runs; ram_freeze adopts a completed merge.
 */
bool ram_flatten_step(struct ram *r);

#endif
