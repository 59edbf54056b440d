// SPDX-License-Identifier: Apache-2.0
#include "vmm/ctl.h"

#include <errno.h>
#include <string.h>

#include "base/fd.h"
#include "base/version.h"

#define DISK_BYTES_MAX (1ull << 40)

static int check_fill(const struct ctl_msg *m, struct err *e)
{
	static const uint8_t none[CTL_INSTANCE_LEN];

	if (m->fill.kind != CTL_BOOT && m->fill.kind != CTL_RESTORE)
		return err_say(e, EPROTO,
			       "CTL_FILL has the kind %u; it must be CTL_BOOT or CTL_RESTORE",
			       m->fill.kind);
	if (m->fill.has_initrd > (m->fill.kind == CTL_BOOT))
		return err_say(e, EPROTO, "has_initrd is %u; it must be 0, or 1 for a boot",
			       m->fill.has_initrd);
	if (m->fill.ram_mib < CONFIG_RAM_MIB_MIN || m->fill.ram_mib > CONFIG_RAM_MIB_MAX ||
	    m->fill.ram_mib % 2)
		return err_say(e, EPROTO, "ram_mib is %u; it must be an even number from %d to %d",
			       m->fill.ram_mib, CONFIG_RAM_MIB_MIN, CONFIG_RAM_MIB_MAX);
	if (m->fill.layers > CTL_LAYERS_MAX)
		return err_say(e, EPROTO, "%u disk layers; the limit is %d", m->fill.layers,
			       CTL_LAYERS_MAX);
	if (m->fill.memory_layers > (m->fill.kind == CTL_RESTORE ? CTL_MEMORY_MAX : 0))
		return err_say(e, EPROTO,
			       "there are %u memory layers; a restore takes up to %d, a boot none",
			       m->fill.memory_layers, CTL_MEMORY_MAX);
	if (!m->fill.disk_bytes || m->fill.disk_bytes % 4096 || m->fill.disk_bytes > DISK_BYTES_MAX)
		return err_say(
			e, EPROTO,
			"the disk has %llu bytes; it must have a multiple of 4096 up to 1 TiB",
			(unsigned long long)m->fill.disk_bytes);
	if (!memchr(m->fill.cmdline, '\0', sizeof(m->fill.cmdline)))
		return err_say(e, EPROTO, "the command line is not terminated within %d bytes",
			       CTL_CMDLINE_MAX);
	if (!memcmp(m->fill.instance, none, sizeof(none)))
		return err_say(e, EPROTO, "CTL_FILL needs an instance that is not all zeros");
	return 0;
}

static int check_flag(const char *name, uint32_t value, struct err *e)
{
	return value > 1 ? err_say(e, EPROTO, "%s is %u; it must be 0 or 1", name, value) : 0;
}

static int check_connect(const struct ctl_msg *m, struct err *e)
{
	return check_flag("vital", m->connect.vital, e);
}

static int check_fork(const struct ctl_msg *m, struct err *e)
{
	return check_flag("stay_paused", m->fork.stay_paused, e);
}

static const struct request {
	const char *name;
	unsigned nfds; /* number of descriptors; for CTL_FILL see fds_of */
	int (*check)(const struct ctl_msg *m, struct err *e);
} requests[] = {
	[CTL_FILL] = {"fill", 0, check_fill}, [CTL_CONNECT] = {"connect", 1, check_connect},
	[CTL_PAUSE] = {"pause", 0, NULL},     [CTL_RUN] = {"run", 0, NULL},
	[CTL_STATS] = {"stats", 0, NULL},     [CTL_QUIT] = {"quit", 0, NULL},
	[CTL_FORK] = {"fork", 1, check_fork}, [CTL_INSPECT] = {"inspect", 1, NULL},
	[CTL_RECORD] = {"record", 0, NULL},
};

/* Returns how many descriptors come with the request, whose fields are checked. */
static unsigned fds_of(const struct ctl_msg *m)
{
	/* kernel, or state and memory file; then disk base and writable layer */
	unsigned always = m->fill.kind == CTL_RESTORE ? 4 : 3;

	if (m->type != CTL_FILL)
		return requests[m->type].nfds;
	return always + m->fill.has_initrd + m->fill.memory_layers + m->fill.layers;
}

int ctl_check_request(const struct ctl_msg *m, size_t bytes, unsigned nfds, struct err *e)
{
	if (bytes != sizeof(*m))
		return err_say(e, EPROTO, "a message must have %zu bytes, not %zu", sizeof(*m),
			       bytes);
	if (version_check("the message", m->version, CTL_VERSION, CTL_VERSION, e) < 0)
		return -ENOTSUP;
	if (!m->seq)
		return err_say(e, EPROTO, "a request needs a seq that is not 0");
	if (m->nfds != nfds)
		return err_say(e, EPROTO, "%u descriptors were announced, but %u came", m->nfds,
			       nfds);
	if (m->type >= ARRAY_LEN(requests) || !requests[m->type].name)
		return err_say(e, EPROTO, "unknown request type %u", m->type);
	if (requests[m->type].check && requests[m->type].check(m, e) < 0)
		return -EPROTO;
	if (nfds != fds_of(m))
		return err_say(e, EPROTO, "this %s request needs %u descriptors, not %u",
			       requests[m->type].name, fds_of(m), nfds);
	return 0;
}
