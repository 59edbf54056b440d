// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/warden/net.h"

#include <errno.h>
#include <fcntl.h>
#include <libmnl/libmnl.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>

#include "base/fd.h"
#include "base/text-file.h"
#include "base/log.h"
#include "orchestrator/warden/net-links.h"
#include "orchestrator/warden/net-nft.h"
#include "orchestrator/warden/net-rules.h"

#define FILE_MAX 8192

/* --- helpers --------------------------------------------------------------------------------- */

static int run_nft(const struct net *n, const char *commands, struct err *e)
{
	return nft_run(n->nft, commands, NULL, "change the host's nftables rules for VMs", e);
}

static bool sysctl_is(const char *path, char value)
{
	char text[16];

	return text_file_read(AT_FDCWD, path, text, sizeof(text)) > 0 && text[0] == value;
}

static int sysctl_set(const char *path, const char *value, struct err *e)
{
	int r = text_file_write(AT_FDCWD, path, value);

	return r < 0 ? err_set(e, -r, "write %s to %s", value, path) : 0;
}

/* --- the host's configuration ---------------------------------------------------------------- */

static void find_dns(char out[static INET_ADDRSTRLEN], const struct config *c)
{
	/* The second file lists the upstream servers of systemd-resolved, when the first names only
	 * its stub. */
	static const char *const files[] = {"/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"};
	char text[FILE_MAX];
	bool any = false, loopback = false;

	snprintf(out, INET_ADDRSTRLEN, "%.*s", INET_ADDRSTRLEN - 1, c->dns);
	if (out[0])
		return;
	for (size_t i = 0; i < ARRAY_LEN(files); i++) {
		if (text_file_read(AT_FDCWD, files[i], text, sizeof(text)) > 0 &&
		    net_find_dns(text, out, &loopback))
			return;
		any |= loopback;
	}
	out[0] = '\0';
	log_warn(any ? "this host's name server is on its loopback, where VMs can't reach it: "
		       "VMs have no name server (set dns to one)"
		     : "this host has no IPv4 name server: VMs have none either (set dns to one)");
}

static int default_route6(struct mnl_socket *nl, struct err *e)
{
	struct range somewhere;

	if (!range_parse(&somewhere, "2000::"))
		return -EINVAL;
	return route_link(nl, &somewhere, e);
}

static int choose_ipv6(struct net *n, const struct config *c, struct mnl_socket *nl, struct err *e)
{
	struct err reason = {0};

	if (c->ipv6[0] == 'n')
		return 0;
	n->ipv6 = default_route6(nl, &reason) > 0;
	if (!n->ipv6 && c->ipv6[0] == 'y')
		return err_say(e, ENETUNREACH,
			       "ipv6 is yes, but this host has no IPv6 default route: add one or "
			       "set ipv6 to no");
	if (!n->ipv6)
		log_info("VMs have no IPv6: this host has no IPv6 default route now");
	return 0;
}

/* --- forwarding ------------------------------------------------------------------------------ */

/* Enables forwarding on the link that leads to `to`, because answers arrive on it. Remembers the
 * link if forwarding was off. */
static int forward_on(struct net *n, struct mnl_socket *nl, const struct range *to, struct err *e)
{
	struct err none;
	char path[80], name[IF_NAMESIZE];
	int index = route_link(nl, to, &none);

	if (index < 0 || !if_indextoname((unsigned)index, name) || strcmp(name, "lo") == 0)
		return 0;
	snprintf(path, sizeof(path), "/proc/sys/net/ipv4/conf/%s/forwarding", name);
	if (sysctl_is(path, '1') || n->n_uplinks == NET_UPLINKS_MAX)
		return 0;
	int r = link_forwarding(nl, name, true, e);
	if (r == 0)
		memcpy(n->uplinks[n->n_uplinks++], name, sizeof(name));
	return r;
}

static int forward_all(struct net *n, const struct net_plan *plan, struct mnl_socket *nl,
		       struct err *e)
{
	const char *list = plan->config->allow;
	char part[RANGE_TEXT_MAX];
	struct range to;
	int r = 0;

	if (range_parse(&to, "1.1.1.1")) /* any destination that only the default route covers */
		r = forward_on(n, nl, &to, e);
	if (r == 0 && range_parse(&to, plan->dns) && to.family == AF_INET)
		r = forward_on(n, nl, &to, e);
	while (r == 0 && range_next(&list, part))
		if (range_parse(&to, part) && to.family == AF_INET)
			r = forward_on(n, nl, &to, e);
	return r;
}

#define FORWARD_IPV6 "/proc/sys/net/ipv6/conf/all/forwarding"

/* Enables IPv6 forwarding, which is possible for all links only. A forwarding link ignores router
 * advertisements unless accept_ra is 2 (the kernel's ip-sysctl.rst). */
static int forward_ipv6(struct net *n, struct mnl_socket *nl, struct err *e)
{
	char path[80], name[IF_NAMESIZE];
	int index = default_route6(nl, e);

	if (sysctl_is(FORWARD_IPV6, '1'))
		return 0;
	if (index < 0)
		return index;
	if (!if_indextoname((unsigned)index, name))
		return err_set(e, errno, "find the name of the link of the IPv6 default route");
	snprintf(path, sizeof(path), "/proc/sys/net/ipv6/conf/%s/accept_ra", name);
	int r = sysctl_is(path, '1') ? sysctl_set(path, "2", e) : 0;
	if (r == 0)
		r = sysctl_set(FORWARD_IPV6, "1", e);
	n->opened_ipv6 = r == 0;
	return r;
}

/* --- open and close -------------------------------------------------------------------------- */

static int lock_namespace(struct net *n, struct err *e)
{
	n->ns = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	if (n->ns < 0)
		return err_set(e, errno, "open this network namespace");
	if (flock(n->ns, LOCK_EX | LOCK_NB) == 0)
		return 0;
	if (errno == EWOULDBLOCK)
		return err_say(e, EEXIST, "another rametd manages VM networks on this host");
	return err_set(e, errno, "lock this network namespace");
}

static int set_table(struct net *n, const struct net_plan *plan, struct err *e)
{
	scoped_free char *rules = net_rules_host(plan);

	n->rules = net_rules_jail(plan);
	if (!rules || !n->rules)
		return err_set(e, ENOMEM, "generate the host's rules for VMs");
	return run_nft(n, rules, e);
}

/* Returns true if a previous warden, which was killed, had enabled IPv6 forwarding. */
static bool was_opened_ipv6(const struct net *n)
{
	scoped_free char *rules = NULL;

	return nft_run(n->nft, "list chain inet ramet forward", &rules, "list rules", NULL) == 0 &&
	       strstr(rules, "meta nfproto ipv6 drop");
}

static int set_up(struct net *n, const struct config *c, uid_t service_uid, struct mnl_socket *nl,
		  struct err *e)
{
	char dns[INET_ADDRSTRLEN];

	find_dns(dns, c);
	if (choose_ipv6(n, c, nl, e) < 0)
		return e->code;
	struct net_plan plan = {
		.config = c, .dns = dns, .service_uid = service_uid, .ipv6 = n->ipv6};
	n->opened_ipv6 = was_opened_ipv6(n);
	plan.closed6 = n->opened_ipv6 || (n->ipv6 && !sysctl_is(FORWARD_IPV6, '1'));
	/* The rules come first, so that forwarding never happens without them. */
	if (set_table(n, &plan, e) < 0 || forward_all(n, &plan, nl, e) < 0)
		return e->code;
	return n->ipv6 ? forward_ipv6(n, nl, e) : 0;
}

int net_open(struct net *n, const struct config *config, uid_t service_uid, struct err *e)
{
	*n = (struct net){.on = config->network[0] != '\0', .ns = -1, .nft = -1};
	if (!n->on)
		return 0;
	if (!range_parse(&n->block, config->network))
		return err_say(e, EINVAL, "network \"%s\" is not a range", config->network);
	int r = lock_namespace(n, e);
	if (r == 0) {
		n->nft = nft_reserve(e);
		r = n->nft < 0 ? n->nft : 0;
	}
	scoped_socket struct mnl_socket *nl = r < 0 ? NULL : links_open(e);
	if (r == 0)
		r = nl ? set_up(n, config, service_uid, nl, e) : e->code;
	if (r < 0)
		net_close(n, false);
	return r;
}

static void take_away(struct net *n)
{
	struct err e;
	scoped_socket struct mnl_socket *nl = links_open(&e);

	for (unsigned i = 0; nl && i < n->n_uplinks; i++)
		if (link_forwarding(nl, n->uplinks[i], false, &e) < 0)
			log_warn("cannot undo the network setup: %s", e.text);
	if (n->opened_ipv6 && sysctl_set(FORWARD_IPV6, "0", &e) < 0)
		log_warn("cannot undo the network setup: %s", e.text);
	if (run_nft(n, "delete table inet ramet", &e) < 0)
		log_warn("cannot undo the network setup: %s", e.text);
}

void net_close(struct net *n, bool remove)
{
	if (remove && n->on && n->nft >= 0)
		take_away(n);
	free(n->rules);
	close_fd(&n->nft);
	close_fd(&n->ns);
	*n = (struct net){.ns = -1, .nft = -1};
}

bool net_was_used(const struct net *n, uint32_t slot, struct net_jail *j)
{
	struct err e;
	char name[IF_NAMESIZE];
	scoped_socket struct mnl_socket *nl = n->on ? links_open(&e) : NULL;

	if (!nl)
		return n->on;
	snprintf(name, sizeof(name), NET_HOST "%u", slot);
	uint64_t packets = link_received(nl, name);
	bool used = packets == UINT64_MAX || packets != j->packets;
	j->packets = packets;
	return used;
}
