// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/warden/request.h"

#include <errno.h>
#include <string.h>

#include "base/version.h"

#define VCPUS_MAX    32
#define RAM_MIB_MIN  128
#define RAM_MIB_MAX  65536
#define MEMORY_LEAST ((uint64_t)RAM_MIB_MIN << 20) /* bytes */
#define MEMORY_LIMIT (1ull << 40)
#define CPU_PCT_MAX  (100u * 1024)
#define PIDS_LIMIT   4096

static int check_range(const char *name, uint64_t value, uint64_t least, uint64_t most,
		       struct err *e)
{
	if (value >= least && value <= most)
		return 0;
	return err_say(e, EINVAL, "%s is %llu; it must be from %llu to %llu", name,
		       (unsigned long long)value, (unsigned long long)least,
		       (unsigned long long)most);
}

static int check_spawn(const struct warden_msg *m, struct err *e)
{
	if (check_range("vcpus", m->spawn.vcpus, 1, VCPUS_MAX, e) < 0 ||
	    check_range("ram_mib", m->spawn.ram_mib, RAM_MIB_MIN, RAM_MIB_MAX, e) < 0 ||
	    check_range("memory_max", m->spawn.memory_max, MEMORY_LEAST, MEMORY_LIMIT, e) < 0 ||
	    check_range("cpu_max_pct", m->spawn.cpu_max_pct, 0, CPU_PCT_MAX, e) < 0)
		return e->code;
	/* One thread for each vCPU and one for the devices. */
	return check_range("pids_max", m->spawn.pids_max, m->spawn.vcpus + 1, PIDS_LIMIT, e);
}

int request_check(struct warden_msg *out, uint32_t *seq, const void *packet, size_t len,
		  uint32_t max_slots, struct err *e)
{
	*seq = 0;
	if (len >= offsetof(struct warden_msg, slot))
		memcpy(seq, (const char *)packet + offsetof(struct warden_msg, seq), sizeof(*seq));
	if (len != sizeof(*out))
		return err_say(e, EPROTO, "the request has %zu bytes; it must have %zu", len,
			       sizeof(*out));
	memcpy(out, packet, sizeof(*out));
	if (version_check("the request", out->version, WARDEN_VERSION, WARDEN_VERSION, e) < 0)
		return -ENOTSUP;
	if (out->seq == 0)
		return err_say(e, EPROTO, "the seq of a request must not be 0");
	if (out->type < WARDEN_SPAWN || out->type > WARDEN_OOM)
		return err_say(e, EPROTO, "%u is not a request type", out->type);
	if (out->slot >= max_slots)
		return err_say(e, ERANGE, "slot %u does not exist; the last is %u", out->slot,
			       max_slots - 1);
	if (out->type == WARDEN_MEMORY)
		return check_range("max", out->memory.max, MEMORY_LEAST, MEMORY_LIMIT, e);
	if (out->type == WARDEN_PRIORITY)
		return check_range("priority", out->priority.priority, 0, WARDEN_PRIORITIES - 1, e);
	if (out->type == WARDEN_OOM)
		return check_range("first", out->oom.first, 0, 1, e);
	return out->type == WARDEN_SPAWN ? check_spawn(out, e) : 0;
}
