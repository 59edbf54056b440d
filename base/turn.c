// SPDX-License-Identifier: Apache-2.0
#include "base/turn.h"

#include <linux/sched.h>
#include <linux/sched/types.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SLICE_NS 100000u /* the minimum in Linux */

static void ask(uint64_t flags)
{
	struct sched_attr a = {0};

	/* The call below sets the policy and priority too, so read them first. */
	if (syscall(SYS_sched_getattr, 0, &a, sizeof(a), 0) < 0)
		return;
	a.sched_runtime = SLICE_NS;
	a.sched_flags |= flags;
	syscall(SYS_sched_setattr, 0, &a, 0);
}

void turn_soon(void)
{
	ask(0);
}

void turn_soon_alone(void)
{
	ask(SCHED_FLAG_RESET_ON_FORK);
}
