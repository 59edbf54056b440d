// SPDX-License-Identifier: Apache-2.0
/*
 * The network namespaces of jails. The warden enters one to create or scrub it, and returns to the
 * host's. A new one gets its links, then its rules before any link is up.
 *
 * Between two VMs the namespace keeps its links, addresses, routes, sysctls and rules, which no VM
 * can change: its process has no capability, and its seccomp filter allows no ioctl of a tap. The
 * scrub removes everything else that a VM may have caused:
 *
 *   connections    deleted
 *   neighbours     those of the tap go when it is down; the other link's only one is the host
 *   frames         queued ones belong to the closed descriptor of the tap, or to its queueing
 *                  discipline, which is reset when it is down
 *   fragments      cannot be removed: the kernel keeps incomplete datagrams for up to a minute, and
 *                  would complete them with those of the next VM, whose addresses are the same. If
 *                  one was seen, the namespace is not used again
 *   route caches   never filled: `chain input` drops ICMP errors and redirects
 *   rate limits    left: within a second they are as new
 */
#include <errno.h>
#include <fcntl.h>
#include <libmnl/libmnl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "base/text-file.h"
#include "base/log.h"
#include "orchestrator/warden/net-links.h"
#include "orchestrator/warden/net-nft.h"
#include "orchestrator/warden/net-rules.h"
#include "orchestrator/warden/net.h"
#include "proto/net.h"

#define VNET_HDR_LEN 12 /* struct virtio_net_hdr_v1 */

/* --- the tap --------------------------------------------------------------------------------- */

static int set_tap(int fd, uid_t uid, struct err *e)
{
	struct ifreq ifr = {.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR};
	int len = VNET_HDR_LEN;

	memcpy(ifr.ifr_name, NET_TAP, sizeof(NET_TAP));
	if (ioctl(fd, TUNSETIFF, &ifr) < 0)
		return err_set(e, errno, "create the tap");
	if (ioctl(fd, TUNSETVNETHDRSZ, &len) < 0)
		return err_set(e, errno, "set the header length of the tap");
	if (ioctl(fd, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN) < 0)
		return err_set(e, errno, "set the offloads of the tap");
	if (ioctl(fd, TUNSETOWNER, (unsigned long)uid) < 0)
		return err_set(e, errno, "set the owner of the tap");
	/* Removing a tap takes 15 ms, in which the ended VM process waits. */
	if (ioctl(fd, TUNSETPERSIST, 1) < 0)
		return err_set(e, errno, "keep the tap");
	return 0;
}

static int set_tap_mac(struct err *e)
{
	static const unsigned char mac[] = NET_GATEWAY_MAC;
	struct ifreq ifr = {.ifr_hwaddr.sa_family = ARPHRD_ETHER};
	scoped_fd int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	memcpy(ifr.ifr_name, NET_TAP, sizeof(NET_TAP));
	memcpy(ifr.ifr_hwaddr.sa_data, mac, sizeof(mac));
	if (fd < 0 || ioctl(fd, SIOCSIFHWADDR, &ifr) < 0)
		return err_set(e, errno, "set the MAC address of the tap");
	return 0;
}

/* Opens the tap, and creates it if it does not exist. Fails if it is still open elsewhere. */
static int open_tap(uid_t uid, struct err *e)
{
	scoped_fd int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0 && (errno == ENOENT || errno == ENODEV || errno == ENXIO))
		return err_say(
			e, errno,
			"/dev/net/tun does not exist: load the kernel module tun (modprobe tun)");
	if (fd < 0)
		return err_set(e, errno, "open /dev/net/tun");

	if (set_tap(fd, uid, e) < 0 || set_tap_mac(e) < 0)
		return e->code;
	return take_fd(&fd);
}

/* --- sysctls of this namespace --------------------------------------------------------------- */

/*
 * Returns the root of a procfs that is mounted nowhere. In /proc itself, the entries that the
 * kernel caches for a sysctl of each namespace are in one chain, which it walks at each open: with
 * 1,000 namespaces, that took more time than all else here. Falls back to /proc where no other
 * procfs may be mounted.
 */
static int open_proc(struct err *e)
{
	scoped_fd int fs = fsopen("proc", FSOPEN_CLOEXEC);
	int root = -1;

	if (fs >= 0 && fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) == 0)
		root = fsmount(fs, FSMOUNT_CLOEXEC,
			       MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
	if (root < 0)
		root = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
	return root < 0 ? err_set(e, errno, "open /proc for the sysctls of a jail") : root;
}

static int set_sysctl(int proc, const char *name, const char *value, struct err *e)
{
	char path[96];

	snprintf(path, sizeof(path), "sys/net/%s", name);
	int r = text_file_write(proc, path, value);
	return r < 0 ? err_set(e, -r, "write %s to /proc/%s", value, path) : 0;
}

/* Called before a link exists, because links copy the defaults when they are created. */
static int set_ipv6(int proc, bool on, struct err *e)
{
	/* A kernel without IPv6 has nothing to disable. */
	if (!on && faccessat(proc, "sys/net/ipv6", F_OK, 0) < 0)
		return 0;
	if (!on)
		return set_sysctl(proc, "ipv6/conf/all/disable_ipv6", "1", e);
	int r = set_sysctl(proc, "ipv6/conf/all/forwarding", "1", e);
	return r < 0 ? r : set_sysctl(proc, "ipv6/conf/default/accept_dad", "0", e);
}

/* The conntrack sysctls exist only after the rules were loaded. */
static int set_conntrack(int proc, struct err *e)
{
	static const struct {
		const char *name, *value;
	} settings[] = {
		{"netfilter/nf_conntrack_tcp_loose", "0"}, /* no mid-stream pick-up */
		{"netfilter/nf_conntrack_tcp_timeout_time_wait", "15"},
		{"netfilter/nf_conntrack_tcp_timeout_established", "86400"},
	};
	int r = 0;

	for (size_t i = 0; r == 0 && i < ARRAY_LEN(settings); i++)
		r = set_sysctl(proc, settings[i].name, settings[i].value, e);
	return r;
}

/* --- links ----------------------------------------------------------------------------------- */

static int parse_into(struct range *out, const char *text, unsigned prefix)
{
	if (!range_parse(out, text))
		return -EINVAL;
	out->prefix = prefix;
	return 0;
}

static int address_tap(struct mnl_socket *own, bool ipv6, struct err *e)
{
	struct range gateway;

	if (parse_into(&gateway, NET_GATEWAY_IPV4, NET_PREFIX_IPV4) < 0)
		return err_say(e, EINVAL, NET_GATEWAY_IPV4 " is not an address");
	int r = link_address(own, NET_TAP, &gateway, e);
	if (r < 0 || !ipv6)
		return r;
	if (parse_into(&gateway, NET_GATEWAY_IPV6, NET_PREFIX_IPV6) < 0)
		return err_say(e, EINVAL, NET_GATEWAY_IPV6 " is not an address");
	return link_address(own, NET_TAP, &gateway, e);
}

/* Creates the link between the host and the jail. Before that, removes the one of this slot's
 * previous jail, which may still exist. */
static int prepare_host(struct mnl_socket *host, struct mnl_socket *own, const char *name, int ns,
			struct err *e)
{
	if (link_delete(host, name, e) < 0)
		return e->code;
	return link_add_veth(own, NET_UPLINK, name, ns, e);
}

static int address_ends(struct mnl_socket *host, struct mnl_socket *own, const char *name,
			const struct net_link *link, bool ipv6, struct err *e)
{
	if (link_address(host, name, &link->host, e) < 0 ||
	    link_address(own, NET_UPLINK, &link->jail, e) < 0 ||
	    (ipv6 && link_address(host, name, &link->host6, e) < 0) ||
	    (ipv6 && link_address(own, NET_UPLINK, &link->jail6, e) < 0))
		return e->code;
	return link_forwarding(host, name, true, e);
}

static int bring_up(struct mnl_socket *host, struct mnl_socket *own, const char *name,
		    const struct net_link *link, bool ipv6, struct err *e)
{
	if (link_set(host, name, true, e) < 0 || link_set(own, NET_UPLINK, true, e) < 0 ||
	    route_default(own, &link->host, e) < 0 ||
	    (ipv6 && route_default(own, &link->host6, e) < 0))
		return e->code;
	return 0;
}

/* Gives the tap its addresses and brings it up. If it was up before, the kernel has removed its
 * IPv6 address. */
static int bring_up_tap(struct mnl_socket *own, bool ipv6, struct err *e)
{
	int r = address_tap(own, ipv6, e);

	return r < 0 ? r : link_set(own, NET_TAP, true, e);
}

static int make_links(const struct net *n, uint32_t slot, int proc, struct mnl_socket *host,
		      struct mnl_socket *own, struct err *e)
{
	struct net_link link;
	char name[IFNAMSIZ];

	snprintf(name, sizeof(name), NET_HOST "%u", slot);
	net_link_of(&link, &n->block, slot);

	if (prepare_host(host, own, name, n->ns, e) < 0 ||
	    nft_run(n->nft, n->rules, NULL, "load the nftables rules of the jail", e) < 0 ||
	    set_conntrack(proc, e) < 0 || address_ends(host, own, name, &link, n->ipv6, e) < 0 ||
	    set_sysctl(proc, "ipv4/ip_forward", "1", e) < 0 ||
	    bring_up(host, own, name, &link, n->ipv6, e) < 0)
		return e->code;
	return bring_up_tap(own, n->ipv6, e);
}

/* --- namespaces ------------------------------------------------------------------------------ */

/* Returns to the host's namespace. In another one, the warden would configure the wrong host. */
static void leave(const struct net *n)
{
	if (setns(n->ns, CLONE_NEWNET) == 0)
		return;
	log_error("cannot return to the host's network namespace: %s", strerror(errno));
	abort();
}

/* Runs in a new namespace; `host` acts in the host's. Returns the tap. */
static int fill(const struct net *n, uint32_t slot, uid_t uid, struct mnl_socket *host,
		struct net_jail *j, struct err *e)
{
	j->ns = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	if (j->ns < 0)
		return err_set(e, errno, "open the jail's network namespace");
	scoped_socket struct mnl_socket *own = links_open(e);
	if (!own)
		return e->code;
	scoped_fd int proc = open_proc(e);
	if (proc < 0)
		return proc;
	int r = set_ipv6(proc, n->ipv6, e);
	if (r < 0)
		return r;
	scoped_fd int tap = open_tap(uid, e);
	if (tap < 0)
		return tap;
	j->tap = link_index(own, NET_TAP, e);
	r = j->tap < 0 ? j->tap : make_links(n, slot, proc, host, own, e);
	return r < 0 ? r : take_fd(&tap);
}

static int make(const struct net *n, uint32_t slot, uid_t uid, struct net_jail *j, struct err *e)
{
	scoped_socket struct mnl_socket *host = links_open(e);

	if (!host)
		return e->code;
	if (unshare(CLONE_NEWNET) < 0)
		return err_set(e, errno, "create a network namespace");
	j->packets = 0; /* the new link has received none */
	int tap = fill(n, slot, uid, host, j, e);
	leave(n);
	if (tap < 0)
		net_jail_close(j);
	return tap;
}

/* Runs in a namespace that had a VM before. Returns the tap. */
static int reopen(const struct net *n, uid_t uid, const struct net_jail *j, struct err *e)
{
	scoped_socket struct mnl_socket *own = links_open(e);
	if (!own)
		return e->code;
	scoped_fd int tap = open_tap(uid, e);
	if (tap < 0)
		return tap;
	int index = link_index(own, NET_TAP, e);
	if (index < 0)
		return index;
	if (index != j->tap) /* open_tap has just made it anew, without the rules of the old one */
		return err_say(e, ENODEV, "the tap is gone");
	int r = bring_up_tap(own, n->ipv6, e);
	return r < 0 ? r : take_fd(&tap);
}

static int enter(const struct net_jail *j, struct err *e)
{
	return setns(j->ns, CLONE_NEWNET) < 0
		       ? err_set(e, errno, "enter the jail's network namespace")
		       : 0;
}

int net_jail_open(const struct net *n, uint32_t slot, uid_t uid, struct net_jail *j, struct err *e)
{
	if (j->ns >= 0) {
		int r = enter(j, e);

		if (r == 0) {
			r = reopen(n, uid, j, e);
			leave(n);
		}
		if (r >= 0)
			return r;
		log_warn("slot %u: replacing its network namespace: %s", slot, e->text);
		net_jail_close(j);
	}
	return make(n, slot, uid, j, e);
}

void net_jail_close(struct net_jail *j)
{
	close_fd(&j->ns);
	*j = NET_JAIL_NONE;
}

/* --- between two VMs ------------------------------------------------------------------------- */

/* Removes what the ended VM left in the namespace, which the caller has entered. Takes the tap down
 * first, so that no more packets arrive. */
static int scrub(struct err *e)
{
	scoped_socket struct mnl_socket *own = links_open(e);

	if (!own)
		return e->code;
	int r = link_set(own, NET_TAP, false, e);
	if (r < 0)
		return r;
	int64_t fragments = net_fragments(e);
	if (fragments > 0)
		return err_say(e, EBUSY,
			       "the kernel may hold incomplete datagrams of the ended VM");
	return fragments < 0 ? (int)fragments : net_flush_connections(e);
}

int net_jail_scrub(const struct net *n, const struct net_jail *j, struct err *e)
{
	int r = enter(j, e);

	if (r < 0)
		return r;
	r = scrub(e);
	leave(n);
	return r;
}
