// SPDX-License-Identifier: Apache-2.0
/*
 * Save and restore of a whole VM (layouts: proto/image.h). A state file has one section for the
 * KVM VM, one for the legacy ports, one for the generation, one for each vCPU and one for each
 * virtio device, each by an explicit list of fields. The VM is paused and its devices are drained.
 */
#ifndef RAMET_VMM_STATE_STATE_H
#define RAMET_VMM_STATE_STATE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/wire.h"
#include "vmm/kvm/memory.h"
#include "vmm/kvm/state.h"

#define STATE_DEVICES_MAX  16
#define STATE_SECTIONS_MAX (3 + KVM_VCPUS_MAX + STATE_DEVICES_MAX)

enum state_section_id {
	STATE_VM = 1,
	STATE_LEGACY = 2,
	STATE_GENERATION = 3, /* from version 3 of the file on */
	STATE_VCPU = 0x100,   /* + its number */
	STATE_DEVICE = 0x200, /* + its number */
};

/* The parts of a VM; none is owned. */
struct vio_mmio;
struct generation;
struct legacy;
struct vcpus;
struct state_parts {
	struct kvm_vm *kvm;
	struct vcpus *vcpus;
	struct legacy *legacy;
	struct generation *generation;
	struct vio_mmio **devices;
	unsigned ndevices;
	uint32_t ram_mib;
};

/* Writes the state file. */
int state_save(const struct state_parts *p, int fd, struct err *e);

/*
 * The same in steps, so that a VM that is to go on need not wait for the slow ones: new finds the
 * room, take reads the VM, which stands still; write may come when it runs again.
 */
struct state_still;
int state_still_new(struct state_still **out, const struct state_parts *p, struct err *e);
int state_still_take(struct state_still *s, struct err *e);
int state_still_write(struct state_still *s, int fd, struct err *e);
void state_still_free(struct state_still *s);

/*
 * Restore, in steps that overlap: open reads the state file; start_vcpus sets the vCPUs and chips
 * on the vCPUs' threads (vcpus_prepared waits for them), when memory is there; set_devices sets
 * the rest meanwhile. Close after vcpus_prepared, or when start_vcpus was not called.
 */
struct state_restore;
int state_open(struct state_restore **out, const struct state_parts *p, int fd, struct err *e);
void state_start_vcpus(struct state_restore *s);
int state_set_devices(struct state_restore *s, struct err *e);
void state_close(struct state_restore *s);

/*
 * Writes RAM to `fd`, an empty file, as a sparse file: pages of zeros are holes. `backing` is the
 * memfd under RAM, whose holes are not even looked at; -1 when RAM is a private map of an image.
 */
int memory_save(const struct gm *m, int backing, int fd, struct err *e);

/* --- The file's frame (file.c) --- */

struct state_section {
	uint32_t id, version;
	struct wire body;
};

struct state_image {
	uint32_t version;
	uint32_t vcpus, ram_mib;
	unsigned nsections;
	struct state_section sections[STATE_SECTIONS_MAX];
};

/* A writer over `buf`; sections between begin and end; finish fills the header in: bytes or -errno.
 */
void state_begin(struct wire *w, void *buf, size_t size, uint32_t vcpus, uint32_t ram_mib);
size_t state_section_begin(struct wire *w, uint32_t id, uint32_t version);
void state_section_end(struct wire *w, size_t mark);
int64_t state_finish(struct wire *w, struct err *e);

/*
 * Checks the frame of a whole state file: magic, version, length, checksum, and that each section
 * a VM of `vcpus` vCPUs and `ndevices` devices has is there once, and no other. `out` points into
 * `file`.
 */
int state_parse(struct state_image *out, const void *file, size_t size, unsigned ndevices,
		struct err *e);
/* Never NULL for an id that state_parse has checked. */
struct state_section *state_find(struct state_image *img, uint32_t id);

/* --- Field lists (fields.c); one list serves both directions --- */

#define STATE_VCPU_VERSION	 1
#define STATE_VM_VERSION	 1
#define STATE_LEGACY_VERSION	 1
#define STATE_DEVICE_VERSION	 1
#define STATE_GENERATION_VERSION 1

void vcpu_state_write(struct wire *w, const struct vcpu_state *s);
/* `s` was all zeros before its first use. */
int vcpu_state_read(struct wire *r, struct vcpu_state *s, struct err *e);
void vm_state_write(struct wire *w, const struct vm_state *s);
int vm_state_read(struct wire *r, struct vm_state *s, struct err *e);

#endif
