// SPDX-License-Identifier: Apache-2.0
/* Runs in the process that becomes the VM, while it is still root: creates the links, then sets the
 * rules before any link is up. */
#include <errno.h>
#include <fcntl.h>
#include <libmnl/libmnl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <nftables/libnftables.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "orchestrator/warden/net-links.h"
#include "orchestrator/warden/net-rules.h"
#include "orchestrator/warden/net.h"
#include "proto/net.h"

#define VNET_HDR_LEN 12 /* struct virtio_net_hdr_v1 */

static void free_socket(struct mnl_socket **nl)
{
	if (*nl)
		mnl_socket_close(*nl);
}

#define scoped_socket __attribute__((cleanup(free_socket)))

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

static int make_tap(uid_t uid, struct err *e)
{
	scoped_fd int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0 && (errno == ENOENT || errno == ENODEV || errno == ENXIO))
		return err_say(
			e, errno,
			"/dev/net/tun does not exist: load the kernel module tun (modprobe tun)");
	if (fd < 0)
		return err_set(e, errno, "open /dev/net/tun");
	int r = set_tap(fd, uid, e);
	if (r == 0)
		r = set_tap_mac(e);
	return r < 0 ? r : take_fd(&fd);
}

/* --- sysctls of this namespace --------------------------------------------------------------- */

static int set_sysctl(const char *name, const char *value, struct err *e)
{
	char path[96];

	snprintf(path, sizeof(path), "/proc/sys/net/%s", name);
	scoped_fd int fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, value, strlen(value)) < 0)
		return err_set(e, errno, "write %s to %s", value, path);
	return 0;
}

/* Called before a link exists, because links copy the defaults when they are created. */
static int set_ipv6(bool on, struct err *e)
{
	/* A kernel without IPv6 has nothing to disable. */
	if (!on && access("/proc/sys/net/ipv6", F_OK) < 0)
		return 0;
	if (!on)
		return set_sysctl("ipv6/conf/all/disable_ipv6", "1", e);
	int r = set_sysctl("ipv6/conf/all/forwarding", "1", e);
	return r < 0 ? r : set_sysctl("ipv6/conf/default/accept_dad", "0", e);
}

/* The conntrack sysctls exist only after the rules were loaded. */
static int set_conntrack(struct err *e)
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
		r = set_sysctl(settings[i].name, settings[i].value, e);
	return r;
}

static int set_rules(const char *rules, struct err *e)
{
	struct nft_ctx *nft = nft_ctx_new(NFT_CTX_DEFAULT);

	if (!nft || nft_ctx_buffer_error(nft) < 0)
		return err_set(e, ENOMEM, "allocate an nftables context for the jail");
	errno = 0;
	int r = 0;
	if (nft_run_cmd_from_buffer(nft, rules) < 0)
		r = err_say(e, errno ? errno : EINVAL,
			    "load the nftables rules of the jail: %.160s",
			    nft_ctx_get_error_buffer(nft));
	nft_ctx_free(nft);
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
	int r = link_delete(host, name, e);

	if (r == 0)
		r = link_add_veth(own, NET_UPLINK, name, ns, e);
	return r;
}

static int address_ends(struct mnl_socket *host, struct mnl_socket *own, const char *name,
			const struct net_link *link, bool ipv6, struct err *e)
{
	int r = link_address(host, name, &link->host, e);

	if (r == 0)
		r = link_address(own, NET_UPLINK, &link->jail, e);
	if (r == 0 && ipv6)
		r = link_address(host, name, &link->host6, e);
	if (r == 0 && ipv6)
		r = link_address(own, NET_UPLINK, &link->jail6, e);
	return r < 0 ? r : link_forwarding(host, name, true, e);
}

static int bring_up(struct mnl_socket *host, struct mnl_socket *own, const char *name,
		    const struct net_link *link, bool ipv6, struct err *e)
{
	int r = link_up(host, name, e);

	if (r == 0)
		r = link_up(own, NET_UPLINK, e);
	if (r == 0)
		r = link_up(own, NET_TAP, e);
	if (r == 0)
		r = route_default(own, &link->host, e);
	if (r == 0 && ipv6)
		r = route_default(own, &link->host6, e);
	return r;
}

static int make_links(const struct net *n, uint32_t slot, struct mnl_socket *host,
		      struct mnl_socket *own, struct err *e)
{
	struct net_link link;
	char name[IFNAMSIZ];

	snprintf(name, sizeof(name), NET_HOST "%u", slot);
	net_link_of(&link, &n->block, slot);
	int r = prepare_host(host, own, name, n->ns, e);
	if (r == 0)
		r = set_rules(n->rules, e);
	if (r == 0)
		r = set_conntrack(e);
	if (r == 0)
		r = address_tap(own, n->ipv6, e);
	if (r == 0)
		r = address_ends(host, own, name, &link, n->ipv6, e);
	if (r == 0)
		r = set_sysctl("ipv4/ip_forward", "1", e);
	return r < 0 ? r : bring_up(host, own, name, &link, n->ipv6, e);
}

/* Opens a netlink socket in the namespace `ns`. It acts there wherever it is used. */
static struct mnl_socket *open_there(int ns, struct err *e)
{
	scoped_fd int own = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);

	if (own < 0 || setns(ns, CLONE_NEWNET) < 0) {
		err_set(e, errno, "enter the host's network namespace");
		return NULL;
	}
	struct mnl_socket *nl = links_open(e);
	if (setns(own, CLONE_NEWNET) == 0)
		return nl;
	err_set(e, errno, "return from the host's network namespace");
	free_socket(&nl);
	return NULL;
}

int net_jail(const struct net *n, uint32_t slot, uid_t uid, struct err *e)
{
	scoped_socket struct mnl_socket *host = open_there(n->ns, e);
	if (!host)
		return e->code;
	scoped_socket struct mnl_socket *own = links_open(e);
	if (!own)
		return e->code;
	int r = set_ipv6(n->ipv6, e);
	if (r < 0)
		return r;
	scoped_fd int tap = make_tap(uid, e);
	if (tap < 0)
		return tap;
	r = make_links(n, slot, host, own, e);
	return r < 0 ? r : take_fd(&tap);
}
