// SPDX-License-Identifier: Apache-2.0
/* Other programs that filter what the host forwards. Ramet's own table cannot undo what they drop.
 */
#include "orchestrator/operator/doctor-internal.h"

#include <string.h>

#define LINE_BYTES 256

static bool ufw_is_on(const struct doctor_host *h)
{
	char line[LINE_BYTES];
	FILE *f = doctor_open(h, "/etc/ufw/ufw.conf");
	bool on = false;

	while (f && !on && fgets(line, sizeof(line), f))
		on = strncasecmp(line, "ENABLED=yes", 11) == 0;
	if (f)
		fclose(f);
	return on;
}

void doctor_check_firewall(const struct doctor_host *h)
{
	char line[LINE_BYTES];

	if (!h->config->network[0]) {
		doctor_say(h, "firewall", DOCTOR_OK, NULL, "VMs have no network (setting network)");
		return;
	}
	if (doctor_line(h, "/proc/net/ip_tables_names", line, sizeof(line)))
		doctor_say(
			h, "firewall", DOCTOR_WARNING,
			"let it forward the range in the setting network, both ways: packets pass "
			"only if both firewalls accept them",
			"rules of the old iptables are loaded (table %.32s)", line);
	else if (ufw_is_on(h))
		doctor_say(
			h, "firewall", DOCTOR_WARNING,
			"`ufw route allow from NETWORK` and `ufw route allow to NETWORK`, with the "
			"range in the setting network",
			"ufw is enabled, and refuses to forward by default");
	else if (doctor_exists(h, "/run/firewalld"))
		doctor_say(h, "firewall", DOCTOR_WARNING,
			   "add the range in the setting network to a zone that forwards, such as "
			   "`firewall-cmd --permanent --zone=trusted --add-source=NETWORK`",
			   "firewalld runs, and may refuse to forward");
	else if (doctor_exists(h, "/sys/class/net/docker0"))
		doctor_say(h, "firewall", DOCTOR_WARNING,
			   "accept the range in the setting network in the chain DOCKER-USER, both "
			   "ways",
			   "Docker runs, and drops packets that it does not forward itself");
	else
		doctor_say(h, "firewall", DOCTOR_OK, NULL, "no other firewall was found");
}
