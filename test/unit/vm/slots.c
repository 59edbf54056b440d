// SPDX-License-Identifier: Apache-2.0
/* Which slot a VM gets. The test replaces the functions of vm/ that slots.c calls. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "orchestrator/vm/slots.c"

#define SLOTS 130 /* the last word of the bitmap is not full */

static unsigned wanted, given; /* calls of the host's callbacks */

void vmproc_start_spawn(struct vmproc *vm)
{
}

void vmproc_fail(struct vmproc *vm, const char *format, ...)
{
}

void vmproc_forget_requests(struct vmproc *vm)
{
}

void vmproc_close_socket(struct vmproc *vm)
{
}

void vmproc_free_if_idle(struct vmproc *vm)
{
}

static void on_wanted(void *arg)
{
	wanted++;
}

static void on_given(void *arg)
{
	given++;
}

static struct vmproc vms[SLOTS + 1];

static void begin(struct vmproc_host *h)
{
	*h = (struct vmproc_host){.want_slot = on_wanted, .slot_free = on_given};
	vmproc_host_init(h, SLOTS);
	wanted = given = 0;
	for (unsigned i = 0; i <= SLOTS; i++) {
		vms[i] = (struct vmproc){.host = h, .id = {.slot = VM_NO_SLOT}};
		list_init(&vms[i].wait_link);
	}
}

static void end(struct vmproc_host *h)
{
	for (unsigned i = 0; i < SLOTS; i++)
		h->slots[i] = NULL;
	vmproc_host_fini(h);
}

static void first_free_slot_is_taken(void **state)
{
	struct vmproc_host h;

	begin(&h);
	vmproc_occupy_slot(&vms[SLOTS], 64);
	for (unsigned i = 0; i < SLOTS - 1; i++) {
		vmproc_take_slot(&vms[i]);
		assert_int_equal(vms[i].id.slot, i < 64 ? i : i + 1);
		assert_ptr_equal(h.slots[vms[i].id.slot], &vms[i]);
	}
	assert_int_equal(h.in_use, SLOTS);
	vmproc_give_slot(&vms[100]);
	vmproc_give_slot(&vms[3]);
	vmproc_give_slot(&vms[SLOTS - 2]);
	vmproc_take_slot(&vms[100]);
	assert_int_equal(vms[100].id.slot, 3);
	vmproc_take_slot(&vms[3]);
	assert_int_equal(vms[3].id.slot, 101);
	vmproc_take_slot(&vms[SLOTS - 2]);
	assert_int_equal(vms[SLOTS - 2].id.slot, SLOTS - 1);
	assert_int_equal(wanted, 0);
	end(&h);
}

static void vm_waits_when_all_slots_are_taken(void **state)
{
	struct vmproc_host h;

	begin(&h);
	for (unsigned i = 0; i <= SLOTS; i++)
		vmproc_take_slot(&vms[i]);
	assert_int_equal(wanted, 1);
	assert_int_equal(vms[SLOTS].id.slot, VM_NO_SLOT);
	vmproc_give_slot(&vms[77]);
	assert_int_equal(given, 1);
	assert_int_equal(vms[SLOTS].id.slot, 77);
	assert_ptr_equal(h.slots[77], &vms[SLOTS]);
	assert_int_equal(h.in_use, SLOTS);
	assert_true(list_empty(&h.waiting));
	end(&h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(first_free_slot_is_taken),
		cmocka_unit_test(vm_waits_when_all_slots_are_taken),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
