// SPDX-License-Identifier: Apache-2.0
#include "base/privileges.h"

#include <errno.h>
#include <linux/securebits.h>
#include <stdbool.h>
#include <sys/prctl.h>

#include "base/fd.h"

/* CapabilityBoundingSet= in orchestrator/daemon/ramet.service has the same names. */
static const cap_value_t warden_keeps[] = {
	CAP_SYS_ADMIN,	  /* namespaces, mounts, and moving a process into a cgroup */
	CAP_NET_ADMIN,	  /* taps, addresses, nftables and connection tracking */
	CAP_SETUID,	  /* the uids of service, ramet-notify and VMs */
	CAP_SETGID,	  /* their gids */
	CAP_SETPCAP,	  /* privileges_bound, for each of them */
	CAP_SYS_RESOURCE, /* more open files, and a negative OOM score */
	CAP_CHOWN,	  /* folders of the service and of VMs */
	CAP_FOWNER,	  /* their modes */
	CAP_DAC_OVERRIDE, /* files in them */
	CAP_KILL,	  /* the service, and VMs */
};

const struct privileges privileges_warden = {"warden", warden_keeps, ARRAY_LEN(warden_keeps)};
const struct privileges privileges_none = {.process = "unprivileged process"};

/* With NO_SETUID_FIXUP clear, a change of root's uid clears the effective and permitted sets. */
#define SECURE_BITS                                                                                \
	(SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP_LOCKED |                    \
	 SECBIT_KEEP_CAPS_LOCKED | SECBIT_NO_CAP_AMBIENT_RAISE |                                   \
	 SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED)

static bool keeps(const struct privileges *p, cap_value_t cap)
{
	for (size_t i = 0; i < p->n; i++)
		if (p->keeps[i] == cap)
			return true;
	return false;
}

int privileges_bound(const struct privileges *p, struct err *e)
{
	for (cap_value_t cap = 0; cap < cap_max_bits(); cap++)
		if (!keeps(p, cap) && cap_drop_bound(cap) < 0)
			return err_set(e, errno, "drop capability %d of the %s", cap, p->process);
	if (cap_reset_ambient() < 0)
		return err_set(e, errno, "clear the ambient capabilities");
	if (cap_set_secbits(SECURE_BITS) < 0)
		return err_set(e, errno, "lock the secure bits");
	return 0;
}

/* Sets in `out` what `p` keeps and `now` permits. Returns 0, or -1 with errno. */
static int reduce(cap_t out, cap_t now, const struct privileges *p)
{
	for (size_t i = 0; i < p->n; i++) {
		cap_flag_value_t has = CAP_CLEAR;

		if (cap_get_flag(now, p->keeps[i], CAP_PERMITTED, &has) < 0 ||
		    cap_set_flag(out, CAP_PERMITTED, 1, &p->keeps[i], has) < 0 ||
		    cap_set_flag(out, CAP_EFFECTIVE, 1, &p->keeps[i], has) < 0)
			return -1;
	}
	return 0;
}

int privileges_keep(const struct privileges *p, struct err *e)
{
	cap_t now = cap_get_proc(), reduced = cap_init();
	int r = 0;

	if (!now || !reduced || reduce(reduced, now, p) < 0 || cap_set_proc(reduced) < 0)
		r = err_set(e, errno, "reduce the capabilities of the %s", p->process);
	cap_free(reduced);
	cap_free(now);
	if (r == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		r = err_set(e, errno, "set no_new_privs");
	return r;
}
