// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/elements.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/report.h"
#include "orchestrator/vm/internal.h"

#define WORD_BITS 64
/* A slot is retired when starting a VM in it has crashed the warden twice. If every start crashes
 * it, only this many slots are tried. */
#define RETIRED_MAX 4

static size_t words(uint32_t slots)
{
	return (slots + WORD_BITS - 1) / WORD_BITS;
}

void vmproc_host_init(struct vmproc_host *h, uint32_t max_vms)
{
	h->max_vms = max_vms;
	h->slots = must_alloc(max_vms * sizeof(struct vmproc *));
	h->taken = must_alloc(words(max_vms) * sizeof(*h->taken));
}

/* VMs with operations in flight are freed when the loop ends these. */
void vmproc_host_fini(struct vmproc_host *h)
{
	for (uint32_t i = 0; h->slots && i < h->max_vms; i++) {
		struct vmproc *vm = h->slots[i];

		if (!vm)
			continue;
		loop_timer_clear(h->loop, &vm->timer);
		loop_timer_clear(h->loop, &vm->head_start);
		deferred_cancel(&vm->deferred);
		vmproc_forget_requests(vm);
		vmproc_close_socket(vm);
		vm->free_me = true;
		vmproc_free_if_idle(vm);
	}
	if (!h->slots)
		return;
	list_each_of_safe (vm, struct vmproc, wait_link, &h->waiting) {
		loop_timer_clear(h->loop, &vm->timer);
		deferred_cancel(&vm->deferred);
		free(vm);
	}
	free(h->slots);
	h->slots = NULL;
	free(h->taken);
	h->taken = NULL;
}

/* Returns the first free slot, or VM_NO_SLOT. */
static uint32_t free_slot(const struct vmproc_host *h)
{
	for (size_t i = 0; i < words(h->max_vms); i++) {
		uint64_t free_bits = ~h->taken[i];

		if (!free_bits)
			continue;
		uint32_t slot = (uint32_t)(i * WORD_BITS) + (uint32_t)__builtin_ctzll(free_bits);
		return slot < h->max_vms ? slot : VM_NO_SLOT;
	}
	return VM_NO_SLOT;
}

void vmproc_occupy_slot(struct vmproc *vm, uint32_t slot)
{
	struct vmproc_host *h = vm->host;

	vm->id.slot = slot;
	h->slots[slot] = vm;
	h->taken[slot / WORD_BITS] |= UINT64_C(1) << slot % WORD_BITS;
	h->in_use++;
}

static bool claim(struct vmproc *vm)
{
	uint32_t slot = free_slot(vm->host);

	if (slot == VM_NO_SLOT)
		return false;
	vmproc_occupy_slot(vm, slot);
	vmproc_start_spawn(vm);
	return true;
}

void vmproc_take_slot(struct vmproc *vm)
{
	struct vmproc_host *h = vm->host;

	if (h->warden_lost)
		vmproc_fail(vm, "the warden is gone");
	else if (!list_empty(&h->waiting) || !claim(vm)) {
		list_add_tail(&h->waiting, &vm->wait_link);
		h->want_slot(h->arg);
	}
}

void vmproc_give_slot(struct vmproc *vm)
{
	struct vmproc_host *h = vm->host;

	if (vm->id.slot == VM_NO_SLOT)
		return;
	h->slots[vm->id.slot] = NULL;
	h->taken[vm->id.slot / WORD_BITS] &= ~(UINT64_C(1) << vm->id.slot % WORD_BITS);
	h->in_use--;
	vm->id.slot = VM_NO_SLOT;
	if (!list_empty(&h->waiting)) {
		struct vmproc *next = container_of(h->waiting.next, struct vmproc, wait_link);

		list_del(&next->wait_link);
		claim(next);
	}
	h->slot_free(h->arg);
}

bool vmproc_retire_slot(struct vmproc *vm)
{
	struct vmproc_host *h = vm->host;

	if (h->retired == RETIRED_MAX)
		return false;
	log_error(
		"slot %u is not used any more: starting a VM in it crashed the warden twice. "
		"`systemctl reload ramet` tries it again; report the crashes, which are in the log",
		vm->id.slot);
	h->slots[vm->id.slot] = NULL; /* its bit in `taken` stays */
	h->retired++;
	h->in_use--;
	vm->id.slot = VM_NO_SLOT;
	return true;
}

uint32_t vmproc_host_usable(const struct vmproc_host *h)
{
	return h->max_vms - h->retired;
}

/* Returns whether the VM process itself wrote the line, and not the guest's console: lines of
 * base/log.h begin with the date. */
static bool is_own_line(const char *line)
{
	return strspn(line, "0123456789") == 4 && line[4] == '-' && strstr(line, "Z ");
}

static void copy_last_line(char *text, enum vmproc_voice voice, char *out, size_t size)
{
	size_t len = strlen(text);

	for (;;) {
		while (len && strchr("\r\n ", text[len - 1]))
			text[--len] = 0;
		char *start = strrchr(text, '\n');
		start = start ? start + 1 : text;
		snprintf(out, size, "%s", start);
		report_clean(out); /* a console's bytes are chosen by a tenant */
		if (!len || voice == VM_PROCESS || !is_own_line(start))
			return;
		len = (size_t)(start - text);
		text[len] = 0;
	}
}

void vmproc_last_words(const struct vmproc *vm, enum vmproc_voice voice, char *out, size_t size)
{
	char path[512], text[2049];

	out[0] = 0;
	if (vm->id.slot == VM_NO_SLOT)
		return;
	snprintf(path, sizeof(path), "%s/vm/%u/log", vm->host->run_dir, vm->id.slot);
	scoped_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
	if (fd < 0)
		return;
	off_t end = lseek(fd, 0, SEEK_END);
	off_t from = end > (off_t)sizeof(text) - 1 ? end - (off_t)sizeof(text) + 1 : 0;
	ssize_t got = pread(fd, text, sizeof(text) - 1, from);
	if (got <= 0)
		return;
	text[got] = 0;
	copy_last_line(text, voice, out, size);
}
