// SPDX-License-Identifier: Apache-2.0
#include "guest/system/system.h"

#define CLOCK_SLACK_NS 1000000

/* Sets the clock to the host's time. Prefers the time that the kernel gets from the host now to the
 * one in the message, which is as old as the message. */
static int step_clock(int64_t sent_ns, const struct system_ops *sys)
{
	int64_t host_ns = sys->host_realtime_ns();
	int64_t ns = host_ns > 0 ? host_ns : sent_ns;
	int64_t off = ns - sys->realtime_ns();

	/* A step moves every wall-clock timer, so the clock is not stepped for a difference as
	 * small as the time of a delivery. */
	if (off >= -CLOCK_SLACK_NS && off <= CLOCK_SLACK_NS)
		return 0;
	return sys->set_realtime(ns);
}

int reseed_apply(const struct reseed_request *r, const struct system_ops *sys, struct err *e)
{
	int bad = sys->add_entropy(r->entropy, sizeof(r->entropy));

	if (bad)
		return err_set(e, -bad, "reseed the kernel's random number generator");
	bad = sys->renew_boot_id();
	if (bad)
		return err_set(e, -bad, "renew the boot id");
	bad = step_clock(r->realtime_ns, sys);
	if (bad)
		return err_set(e, -bad, "set the clock");
	bad = r->hostname[0] ? sys->set_hostname(r->hostname) : 0;
	if (bad)
		return err_set(e, -bad, "set the host name");
	bad = sys->reset_tcp();
	if (bad)
		return err_set(e, -bad, "reset connections");
	/* Last: the VMM holds the guest's frames until then. */
	bad = sys->confirm_unique();
	return bad ? err_set(e, -bad, "open the network") : 0;
}
