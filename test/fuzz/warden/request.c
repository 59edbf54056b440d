// SPDX-License-Identifier: Apache-2.0
/* Checks a packet as a compromised service could send it. The first byte is the number of slots. */
#include <stdlib.h>
#include <string.h>

#include "orchestrator/warden/request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(int right)
{
	if (!right)
		abort();
}

static void check_spawn(const struct warden_msg *m)
{
	expect(m->spawn.vcpus >= 1 && m->spawn.vcpus <= 32);
	expect(m->spawn.ram_mib >= 128 && m->spawn.ram_mib <= 65536);
	expect(m->spawn.memory_max >= 128u << 20);
	expect(m->spawn.memory_max <= 1ull << 40);
	expect(m->spawn.pids_max > m->spawn.vcpus && m->spawn.pids_max <= 4096);
	expect(m->spawn.cpu_max_pct <= 102400);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct warden_msg m;
	struct err e = {0};
	uint32_t seq;

	if (size == 0)
		return 0;
	uint32_t slots = data[0] + 1u;
	int r = request_check(&m, &seq, data + 1, size - 1, slots, &e);
	if (r < 0) {
		expect(e.code == r && e.text[0] && memchr(e.text, '\0', sizeof(e.text)));
		return 0;
	}
	expect(size - 1 == sizeof(m));
	expect(seq != 0 && seq == m.seq && m.slot < slots);
	if (m.type == WARDEN_SPAWN)
		check_spawn(&m);
	else if (m.type == WARDEN_MEMORY)
		expect(m.memory.max >= 128u << 20 && m.memory.max <= 1ull << 40);
	else if (m.type == WARDEN_PRIORITY)
		expect(m.priority.priority < WARDEN_PRIORITIES);
	else if (m.type == WARDEN_OOM)
		expect(m.oom.first <= 1);
	else
		expect(m.type == WARDEN_RELEASE || m.type == WARDEN_NO_EGRESS ||
		       m.type == WARDEN_CHARGED);
	return 0;
}
