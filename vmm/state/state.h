// SPDX-License-Identifier: Apache-2.0
/*
 * Saves and restores a whole VM (layouts: proto/image.h). A state file has one section each for the
 * KVM VM, the CMOS clock, the generation, the working set, every vCPU and every virtio device, with
 * an explicit list of fields. The VM is paused and its devices are drained.
 */
#ifndef RAMET_VMM_STATE_STATE_H
#define RAMET_VMM_STATE_STATE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/wire.h"
#include "vmm/kvm/memory.h"
#include "vmm/kvm/state.h"
#include "vmm/kvm/working-set.h"

#define STATE_DEVICES_MAX  16
#define STATE_SECTIONS_MAX (4 + KVM_VCPUS_MAX + STATE_DEVICES_MAX)
/*
 * Stored in every section. A change to the layout of a section raises IMAGE_STATE_VERSION
 * (proto/versions.h) instead.
 */
#define STATE_SECTION_VERSION 1

enum state_section_id {
	STATE_VM = 1,
	STATE_CMOS = 2,
	STATE_GENERATION = 3,
	STATE_WORKING_SET = 4,
	STATE_VCPU = 0x100,   /* + index of the vCPU */
	STATE_DEVICE = 0x200, /* + index of the device */
};

/* The parts of a VM, all owned by the caller. */
struct vio_mmio;
struct generation;
struct cmos;
struct vcpus;
struct state_parts {
	struct kvm_vm *kvm;
	struct vcpus *vcpus;
	struct cmos *cmos;
	struct generation *generation;
	struct vio_mmio **devices;
	unsigned ndevices;
	uint32_t ram_mib;
	const struct gm *mem;		 /* backed before state_start_vcpus */
	struct working_set *working_set; /* filled by state_open, saved by state_capture_take */
};

/*
 * Writes the state file in steps, so that a VM that continues need not wait for the slow ones: new
 * allocates, take reads the paused VM, write may be called when it runs again.
 */
struct state_capture;
int state_capture_new(struct state_capture **out, const struct state_parts *p, struct err *e);
int state_capture_take(struct state_capture *s, struct err *e);
int state_capture_write(struct state_capture *s, int fd, struct err *e);
void state_capture_free(struct state_capture *s);

/*
 * Restores in steps that overlap. open reads the state file. start_vcpus sets the vCPUs and chips
 * on the vCPU threads, once memory is in place (vcpus_prepared waits for them); set_devices sets
 * the rest meanwhile. Call close last; if start_vcpus was called, only after vcpus_prepared.
 */
struct state_restore;
int state_open(struct state_restore **out, const struct state_parts *p, int fd, struct err *e);
void state_start_vcpus(struct state_restore *s);
int state_set_devices(struct state_restore *s, struct err *e);
void state_close(struct state_restore *s);

/* --- The structure of the file (file.c) --- */

struct state_section {
	uint32_t id, version;
	struct wire body;
};

struct state_file {
	uint32_t vcpus, ram_mib;
	unsigned nsections;
	struct state_section sections[STATE_SECTIONS_MAX];
};

/*
 * Writes a state file to `buf`: begin, then the sections, each between section_begin and
 * section_end, then finish, which fills in the header and returns the size or -errno.
 */
void state_begin(struct wire *w, void *buf, size_t size, uint32_t vcpus, uint32_t ram_mib);
size_t state_section_begin(struct wire *w, uint32_t id);
void state_section_end(struct wire *w, size_t mark);
int64_t state_finish(struct wire *w, struct err *e);

/*
 * Checks the structure of a state file: magic, version, length, checksum, and that it has exactly
 * the sections of a VM with its number of vCPUs and `ndevices` devices, each once. `out` points
 * into `file`.
 */
int state_parse(struct state_file *out, const void *file, size_t size, unsigned ndevices,
		struct err *e);
/* Returns a section of a parsed file, which has all of enum state_section_id. */
struct state_section *state_find(struct state_file *img, uint32_t id);

/* --- Field lists (fields.c), which serve both directions --- */

void vcpu_state_write(struct wire *w, const struct vcpu_state *s);
/* `s` must be all zeros before its first use. */
int vcpu_state_read(struct wire *r, struct vcpu_state *s, struct err *e);
void vm_state_write(struct wire *w, const struct vm_state *s);
int vm_state_read(struct wire *r, struct vm_state *s, struct err *e);
void working_set_write(struct wire *w, const struct working_set *s);
/* `s` is empty before its first use; the caller frees it, also after a failure. */
int working_set_read(struct wire *r, struct working_set *s, uint32_t ram_mib, struct err *e);

#endif
