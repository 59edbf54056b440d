// SPDX-License-Identifier: Apache-2.0
/*
 * Tests the network of jails with real packets and without VMs: the test's own namespace is the
 * host, another one is the outside world, and a guest is a namespace with a tap whose frames are
 * carried to the jail's tap and back. Needs root, nothing else.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/ip.h>
#include <netinet/ip_icmp.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <netpacket/packet.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/fd.h"
#include "base/log.h"
#include "orchestrator/warden/net-netfilter.h"
#include "orchestrator/warden/net.h"
#include "proto/net.h"

#define WAIT_MS	 20000
#define OUTSIDE	 "203.0.113.1"	 /* address of the outside world */
#define HOST	 "203.0.113.254" /* address of the host, as seen from outside */
#define OUTSIDE6 "2a00:ffff::1"
#define HOST6	 "2a00:ffff::fe"
#define PORT	 "80"
#define JAIL_UID 310000
#define MOST	 100 /* maximum of concurrent connections */

static int host_ns = -1, outside_ns = -1;
static struct config config;
static struct net net = {.ns = -1};
static pid_t servers[2];
static int arrived[2]; /* a pipe in packet mode: the datagrams that reached the outside */

struct guest {
	int ns;
	pid_t carrier;
	struct net_jail jail;
};

#define SERVICE 64999 /* uid of the service */

static struct guest guests[2] = {{.jail.ns = -1}, {.jail.ns = -1}};

/* --- helpers --------------------------------------------------------------------------------- */

static void run(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void run(const char *format, ...)
{
	char command[512];
	va_list args;

	va_start(args, format);
	vsnprintf(command, sizeof(command), format, args);
	va_end(args);
	if (system(command) != 0)
		fail_msg("`%s` failed", command);
}

static int new_ns(void)
{
	assert_int_equal(unshare(CLONE_NEWNET), 0);
	int fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	return fd;
}

static void enter(int ns)
{
	assert_int_equal(setns(ns, CLONE_NEWNET), 0);
}

/* Returns the output of a command in a namespace. */
static const char *output_in(int ns, const char *command)
{
	static char text[32768];
	size_t used = 0, n;

	enter(ns);
	FILE *f = popen(command, "re");
	assert_non_null(f);
	while ((n = fread(text + used, 1, sizeof(text) - 1 - used, f)) > 0)
		used += n;
	text[used] = '\0';
	pclose(f);
	enter(host_ns);
	return text;
}

static struct sockaddr_in to(const char *address, unsigned short port)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};

	assert_int_equal(inet_pton(AF_INET, address, &at.sin_addr), 1);
	return at;
}

static struct sockaddr_in6 to6(const char *address, unsigned short port)
{
	struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_port = htons(port)};

	assert_int_equal(inet_pton(AF_INET6, address, &at.sin6_addr), 1);
	return at;
}

static int family_socket_in(int ns, int family, int type, int protocol)
{
	enter(ns);
	int fd = socket(family, type | SOCK_CLOEXEC, protocol);
	enter(host_ns);
	assert_true(fd >= 0);
	return fd;
}

static int socket_in(int ns, int type, int protocol)
{
	return family_socket_in(ns, AF_INET, type, protocol);
}

static bool readable(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, WAIT_MS) == 1;
}

/* Connects from a namespace. Returns a socket or -errno. */
static int dial(int ns, const char *address, unsigned short port)
{
	bool v6 = strchr(address, ':') != NULL;
	struct sockaddr_in at = v6 ? (struct sockaddr_in){0} : to(address, port);
	struct sockaddr_in6 at6 = v6 ? to6(address, port) : (struct sockaddr_in6){0};
	scoped_fd int fd = family_socket_in(ns, v6 ? AF_INET6 : AF_INET, SOCK_STREAM, 0);
	struct timeval limit = {.tv_sec = WAIT_MS / 1000};

	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	int r = v6 ? connect(fd, (struct sockaddr *)&at6, sizeof(at6))
		   : connect(fd, (struct sockaddr *)&at, sizeof(at));
	return r < 0 ? -errno : take_fd(&fd);
}

/* Returns the server's first message: the client address that it sees. */
static const char *greeting(int fd)
{
	static char text[64];

	assert_true(readable(fd));
	ssize_t n = recv(fd, text, sizeof(text) - 1, 0);
	text[n > 0 ? n : 0] = '\0';
	return text;
}

static void assert_reaches(int ns, const char *address, const char *seen)
{
	scoped_fd int fd = dial(ns, address, 80);

	if (fd < 0)
		fail_msg("%s is not reached: %s", address, strerror(-fd));
	assert_string_equal(greeting(fd), seen);
}

/* The refusal must be explicit: a timeout is not enough. */
static void assert_refused(int ns, const char *address)
{
	scoped_fd int fd = dial(ns, address, 80);

	if (fd >= 0)
		fail_msg("%s is reached", address);
	if (fd != -EHOSTUNREACH && fd != -ECONNREFUSED && fd != -EACCES && fd != -ENETUNREACH)
		fail_msg("%s: %s", address, strerror(-fd));
}

/* --- servers outside and on the host --------------------------------------------------------- */

static int listen_on(int type, unsigned short port)
{
	struct sockaddr_in at = to("0.0.0.0", port);
	int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0), on = 1;

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(fd, (struct sockaddr *)&at, sizeof(at)) < 0)
		abort();
	if (type == SOCK_STREAM && listen(fd, 64) < 0)
		abort();
	return fd;
}

static int listen_on6(unsigned short port)
{
	struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
	int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;

	setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
	if (bind(fd, (struct sockaddr *)&at, sizeof(at)) < 0 || listen(fd, 64) < 0)
		abort();
	return fd;
}

static void greet(int fd)
{
	struct sockaddr_storage from;
	socklen_t len = sizeof(from);
	char text[INET6_ADDRSTRLEN];
	int c = accept4(fd, (struct sockaddr *)&from, &len, SOCK_CLOEXEC);

	if (from.ss_family == AF_INET6)
		inet_ntop(AF_INET6, &((struct sockaddr_in6 *)&from)->sin6_addr, text, sizeof(text));
	else
		inet_ntop(AF_INET, &((struct sockaddr_in *)&from)->sin_addr, text, sizeof(text));
	if (c >= 0) /* stays open until the end of the test */
		send(c, text, strlen(text), MSG_NOSIGNAL);
}

static void echo(int fd)
{
	struct sockaddr_in from;
	socklen_t len = sizeof(from);
	char text[256];
	ssize_t n = recvfrom(fd, text, sizeof(text), 0, (struct sockaddr *)&from, &len);

	if (n > 0 && write(arrived[1], text, (size_t)n) == n)
		sendto(fd, text, (size_t)n, 0, (struct sockaddr *)&from, len);
}

static pid_t serve(int ns)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setns(ns, CLONE_NEWNET);
	struct pollfd p[] = {{.fd = listen_on(SOCK_STREAM, 80), .events = POLLIN},
			     {.fd = listen_on6(80), .events = POLLIN},
			     {.fd = listen_on(SOCK_DGRAM, 53), .events = POLLIN},
			     {.fd = listen_on(SOCK_DGRAM, 9), .events = POLLIN}};
	for (;;) {
		if (poll(p, 4, -1) < 0)
			_exit(1);
		for (int i = 0; i < 2; i++)
			if (p[i].revents)
				greet(p[i].fd);
		for (int i = 2; i < 4; i++)
			if (p[i].revents)
				echo(p[i].fd);
	}
}

/* Asserts that this is the next datagram that reached the outside. */
static void assert_next(const char *wanted)
{
	char text[256];

	assert_true(readable(arrived[0]));
	ssize_t n = read(arrived[0], text, sizeof(text) - 1);
	text[n > 0 ? n : 0] = '\0';
	assert_string_equal(text, wanted);
}

static void say(int ns, const char *source, const char *text)
{
	struct sockaddr_in from = to(source, 0), at = to(OUTSIDE, 9);
	scoped_fd int fd = socket_in(ns, SOCK_DGRAM, 0);

	assert_int_equal(bind(fd, (struct sockaddr *)&from, sizeof(from)), 0);
	assert_true(sendto(fd, text, strlen(text), 0, (struct sockaddr *)&at, sizeof(at)) > 0);
}

/* --- guests ---------------------------------------------------------------------------------- */

static int guest_tap(void)
{
	struct ifreq ifr = {.ifr_name = "eth0", .ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR};
	int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC), len = 12;

	assert_int_equal(ioctl(fd, TUNSETIFF, &ifr), 0);
	assert_int_equal(ioctl(fd, TUNSETVNETHDRSZ, &len), 0);
	return fd;
}

static void carry(int from, int into)
{
	static char frame[70000];
	ssize_t n = read(from, frame, sizeof(frame));

	if (n > 0 && write(into, frame, (size_t)n) < 0 && errno == EBADFD)
		_exit(1);
}

static pid_t start_carrier(int a, int b)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	close_fd(&net.ns); /* an inherited descriptor would hold the lock as well */
	for (;;) {
		struct pollfd p[] = {{.fd = a, .events = POLLIN}, {.fd = b, .events = POLLIN}};

		if (poll(p, 2, -1) < 0)
			_exit(1);
		if (p[0].revents)
			carry(a, b);
		if (p[1].revents)
			carry(b, a);
	}
}

static void set_guest_mac(const char *mac)
{
	run("ip link set eth0 down && ip link set eth0 address %s && ip link set eth0 up && "
	    "ip route replace default via " NET_GATEWAY_IPV4 " && ip addr replace " NET_GUEST_IPV6
	    "/64 dev eth0 nodad"
	    " && ip route replace default via " NET_GATEWAY_LINK_LOCAL " dev eth0",
	    mac);
}

static void start_guest(struct guest *g, uint32_t slot)
{
	static const unsigned char m[] = NET_GUEST_MAC;
	struct err e = {0};
	char mac[18];

	scoped_fd int tap = net_jail_open(&net, slot, JAIL_UID, &g->jail, &e);
	if (tap < 0)
		fail_msg("%s", e.text);
	g->ns = new_ns();
	scoped_fd int own = guest_tap();
	snprintf(mac, sizeof(mac), "%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4],
		 m[5]);
	run("ip link set lo up && ip addr add %s/%d dev eth0", NET_GUEST_IPV4, NET_PREFIX_IPV4);
	set_guest_mac(mac);
	enter(host_ns);
	g->carrier = start_carrier(tap, own);
}

/* Ends the guest, but keeps the network of its jail. */
static void kill_guest(struct guest *g)
{
	kill(g->carrier, SIGKILL);
	assert_int_equal(waitpid(g->carrier, NULL, 0), g->carrier);
	close_fd(&g->ns);
}

static void end_guest(struct guest *g)
{
	kill_guest(g);
	net_jail_close(&g->jail);
}

/* Ends the guest and starts another one in the same slot, as the warden does. */
static void replace_guest(struct guest *g, uint32_t slot)
{
	struct err e = {0};
	int ns = g->jail.ns;

	kill_guest(g);
	if (net_jail_scrub(&net, &g->jail, &e) < 0)
		fail_msg("%s", e.text);
	start_guest(g, slot);
	assert_int_equal(g->jail.ns, ns);
}

static void set_egress(uint32_t slot, bool allowed)
{
	struct err e = {0};

	if (net_egress(&net, slot, allowed, &e) < 0)
		fail_msg("%s", e.text);
}

/* --- tests ----------------------------------------------------------------------------------- */

static void guest_reaches_outside_as_the_host(void **state)
{
	assert_reaches(guests[0].ns, OUTSIDE, HOST);
	assert_reaches(guests[1].ns, OUTSIDE, HOST);
}

static void guest_reaches_outside_over_ipv6(void **state)
{
	assert_reaches(host_ns, "fd99::1", HOST6); /* the server exists */
	assert_reaches(guests[0].ns, OUTSIDE6, HOST6);
	assert_reaches(guests[0].ns, "fd00:8::1", HOST6); /* allowed */
	assert_refused(guests[0].ns, "fd99::1");
	assert_refused(guests[0].ns, HOST6);
	assert_refused(guests[0].ns, "fd52:616d:6574:ff00::");	/* the host's end of this link */
	assert_refused(guests[0].ns, "fd52:616d:6574:ff00::3"); /* the other guest's jail */
	assert_refused(guests[0].ns, NET_GATEWAY_IPV6);
}

static void gateway_answers_dns(void **state)
{
	struct sockaddr_in at = to(NET_GATEWAY_IPV4, 53);
	scoped_fd int fd = socket_in(guests[0].ns, SOCK_DGRAM, 0);
	char answer[16] = "";

	assert_true(sendto(fd, "name?", 5, 0, (struct sockaddr *)&at, sizeof(at)) > 0);
	assert_next("name?");
	assert_true(readable(fd));
	assert_int_equal(recv(fd, answer, sizeof(answer), 0), 5);
}

static void private_ranges_are_refused(void **state)
{
	assert_reaches(host_ns, "10.9.9.9", HOST); /* the servers exist */
	assert_reaches(host_ns, "169.254.169.254", HOST);
	assert_refused(guests[0].ns, "10.9.9.9");
	assert_refused(guests[0].ns, "169.254.169.254");
	assert_refused(guests[0].ns, "168.63.129.16");
	assert_refused(guests[0].ns, "100.100.100.200");
	assert_refused(guests[0].ns, "192.0.0.192");
	assert_refused(guests[0].ns, "172.16.0.1");
	assert_refused(guests[0].ns, "192.168.1.1");
	assert_refused(guests[0].ns, "100.64.0.1");
	assert_refused(guests[0].ns, "240.0.0.1");
}

static void allowed_range_is_reachable(void **state)
{
	assert_reaches(guests[0].ns, "10.8.0.1", HOST);
}

static void host_is_unreachable(void **state)
{
	assert_reaches(outside_ns, HOST, OUTSIDE); /* others reach it */
	assert_refused(guests[0].ns, HOST);
	assert_refused(guests[0].ns, "10.251.0.0"); /* the host's end of this link */
	assert_refused(guests[0].ns, "10.251.0.2"); /* the host's end of the other link */
	assert_refused(guests[0].ns, NET_GATEWAY_IPV4);
}

static void guests_cannot_reach_each_other(void **state)
{
	assert_refused(guests[0].ns, "10.251.0.3");
	assert_refused(guests[1].ns, "10.251.0.1");
}

/* Returns the number of packets that a rule of the host's table dropped. */
static unsigned long dropped(const char *chain, const char *rule)
{
	char command[64];

	snprintf(command, sizeof(command), "nft list chain inet ramet %s", chain);
	const char *at = strstr(output_in(host_ns, command), rule);
	assert_non_null(at);
	return strtoul(at + strlen(rule), NULL, 10);
}

static void wait_for_drop(const char *chain, const char *rule, unsigned long before)
{
	struct timespec pause = {.tv_nsec = 5000000};

	for (int i = 0; i < WAIT_MS / 5 && dropped(chain, rule) == before; i++)
		nanosleep(&pause, NULL);
	assert_true(dropped(chain, rule) > before);
}

/* Packets that no guest asked for are dropped, even from a neighbour with a route. */
static void inbound_packets_are_dropped(void **state)
{
	static const char rule[] = "oifname \"rt*\" counter packets ";
	struct sockaddr_in at = to("10.251.0.1", 9);
	scoped_fd int fd = socket_in(outside_ns, SOCK_DGRAM, 0);
	unsigned long before = dropped("forward", rule);

	enter(outside_ns);
	run("ip route replace 10.251.0.0/17 via " HOST);
	enter(host_ns);
	assert_true(sendto(fd, "hello?", 6, 0, (struct sockaddr *)&at, sizeof(at)) > 0);
	wait_for_drop("forward", rule, before);
}

#define CLOSED "first", "@no_egress counter packets "

static void say_in_vain(int ns)
{
	unsigned long before = dropped(CLOSED);

	say(ns, NET_GUEST_IPV4, "from the closed one");
	wait_for_drop(CLOSED, before);
}

static int on_generation(const struct nlmsghdr *head, void *arg)
{
	struct nlattr *attr;

	mnl_attr_for_each(attr, head, sizeof(struct nfgenmsg))
	{
		if (mnl_attr_get_type(attr) == NFTA_GEN_ID)
			*(uint32_t *)arg = ntohl(mnl_attr_get_u32(attr));
	}
	return MNL_CB_OK;
}

/* Returns the number of changes of the host's rules so far. */
static uint32_t generation(void)
{
	_Alignas(struct nlmsghdr) char bytes[NETFILTER_REQUEST_MAX];
	struct nlmsghdr *head =
		netfilter_begin(bytes, NFNL_SUBSYS_NFTABLES, NFT_MSG_GETGEN, NLM_F_ACK, AF_UNSPEC);
	uint32_t id = 0;

	assert_int_equal(netfilter_ask(head, head->nlmsg_len, on_generation, &id), 0);
	assert_int_not_equal(id, 0);
	return id;
}

/* Each new VM opens its slot, and a change of the rules costs more than the rest of that. */
static void opening_an_open_slot_changes_no_rules(void **state)
{
	set_egress(0, false);
	set_egress(0, true);
	uint32_t before = generation();
	set_egress(0, true);
	set_egress(7, true); /* was never closed */
	assert_int_equal(generation(), before);
	set_egress(0, false);
	assert_int_not_equal(generation(), before);
	set_egress(0, true);
}

static void closed_slot_sends_nothing(void **state)
{
	set_egress(0, false);
	set_egress(0, false); /* repeating it changes nothing */
	say_in_vain(guests[0].ns);
	say(guests[1].ns, NET_GUEST_IPV4, "from the other");
	assert_next("from the other");
	set_egress(0, true);
	set_egress(0, true);
	say(guests[0].ns, NET_GUEST_IPV4, "opened");
	assert_next("opened");
}

static void spoofed_ip_is_dropped(void **state)
{
	enter(guests[0].ns);
	run("ip addr add 192.168.252.66/32 dev eth0 && ip addr add 203.0.113.9/32 dev eth0");
	enter(host_ns);
	say(guests[0].ns, "192.168.252.66", "forged");
	say(guests[0].ns, "203.0.113.9", "forged, too");
	say(guests[0].ns, NET_GUEST_IPV4, "honest");
	assert_next("honest");
	enter(guests[0].ns);
	run("ip addr del 192.168.252.66/32 dev eth0 && ip addr del 203.0.113.9/32 dev eth0");
	enter(host_ns);
}

/* Uses its own ARP entries, so that the datagram itself is sent with the wrong MAC. */
static void spoofed_mac_is_dropped(void **state)
{
	enter(guests[0].ns);
	set_guest_mac("02:00:00:00:00:66");
	run("ip neigh replace " NET_GATEWAY_IPV4 " lladdr 02:52:41:4d:45:01 dev eth0");
	enter(host_ns);
	say(guests[0].ns, NET_GUEST_IPV4, "forged");
	enter(guests[0].ns);
	set_guest_mac("02:52:41:4d:45:54");
	enter(host_ns);
	say(guests[0].ns, NET_GUEST_IPV4, "honest");
	assert_next("honest");
}

static uint16_t checksum(const void *data, size_t len, uint32_t sum)
{
	const uint8_t *p = data;

	for (size_t i = 0; i < len; i++)
		sum += i % 2 ? p[i] : (uint32_t)p[i] << 8;
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return htons((uint16_t)~sum);
}

/* Sends a segment of a connection that this jail has never seen, as a fork's child would. */
static void send_stray(int raw)
{
	struct sockaddr_in at = to(OUTSIDE, 80), from = to(NET_GUEST_IPV4, 0);
	struct tcphdr t = {.source = htons(40000), .dest = htons(80), .doff = 5, .ack = 1};
	uint32_t sum = IPPROTO_TCP + sizeof(t);
	const uint8_t *a = (const uint8_t *)&at.sin_addr, *b = (const uint8_t *)&from.sin_addr;

	t.seq = htonl(1000);
	t.ack_seq = htonl(2000);
	t.window = htons(1000);
	for (int i = 0; i < 4; i += 2)
		sum += (uint32_t)(a[i] << 8 | a[i + 1]) + (uint32_t)(b[i] << 8 | b[i + 1]);
	t.check = checksum(&t, sizeof(t), sum);
	assert_int_equal(sendto(raw, &t, sizeof(t), 0, (struct sockaddr *)&at, sizeof(at)),
			 sizeof(t));
}

static void unknown_connection_is_reset(void **state)
{
	scoped_fd int raw = socket_in(guests[0].ns, SOCK_RAW, IPPROTO_TCP);
	struct tcphdr t = {0};
	char packet[256];

	send_stray(raw);
	do {
		assert_true(readable(raw));
		ssize_t n = recv(raw, packet, sizeof(packet), 0);
		assert_true(n >= (ssize_t)(sizeof(struct iphdr) + sizeof(t)));
		memcpy(&t, packet + sizeof(struct iphdr), sizeof(t));
	} while (t.dest != htons(40000));
	assert_true(t.rst);
}

static void concurrent_connections_are_limited(void **state)
{
	int held[MOST + 1], n = 0;

	while (n <= MOST && (held[n] = dial(guests[1].ns, OUTSIDE, 80)) >= 0)
		n++;
	assert_in_range(n, 1, MOST);
	assert_int_equal(held[n], -EHOSTUNREACH);
	assert_reaches(guests[0].ns, OUTSIDE, HOST); /* other guests are not affected */
	while (n > 0)
		close_fd(&held[--n]);
}

/* The last packets of these connections stop at the jail, which forgets them; the host does not. */
static void connections_ended_in_the_jail_only_still_count(void **state)
{
	const struct linger at_once = {.l_onoff = 1};
	struct err e = {0};
	int n = 0, fd = 0, hops = 1;

	while (n <= MOST && (fd = dial(guests[0].ns, OUTSIDE, 80)) >= 0) {
		greeting(fd); /* nothing is pending that a reset would answer */
		assert_int_equal(setsockopt(fd, SOL_IP, IP_TTL, &hops, sizeof(hops)), 0);
		setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
		close_fd(&fd);
		n++;
	}
	assert_in_range(n, 1, MOST);
	assert_int_equal(fd, -EHOSTUNREACH);
	assert_int_equal(net_forget(&net, 0, &e), 0);
	assert_reaches(guests[0].ns, OUTSIDE, HOST);
}

static void other_protocols_are_refused(void **state)
{
	static const int protocols[] = {IPPROTO_SCTP, IPPROTO_GRE, IPPROTO_DCCP, 253};
	struct sockaddr_in at = to(OUTSIDE, 0);

	for (size_t i = 0; i < ARRAY_LEN(protocols); i++) {
		scoped_fd int out = socket_in(guests[0].ns, SOCK_RAW, protocols[i]);
		scoped_fd int in = socket_in(outside_ns, SOCK_RAW, protocols[i]);
		struct pollfd p = {.fd = in, .events = POLLIN};
		char zeros[32] = "";

		assert_true(sendto(out, zeros, sizeof(zeros), 0, (void *)&at, sizeof(at)) > 0);
		say(guests[0].ns, NET_GUEST_IPV4, "behind it");
		assert_next("behind it");
		assert_int_equal(poll(&p, 1, 0), 0);
	}
}

struct tagged {
	struct ether_header eth;
	uint16_t tag, type;
	struct iphdr ip;
	struct udphdr udp;
	char text[6];
} __attribute__((packed));

/* Sends a datagram to the outside in a frame with this VLAN tag. */
static void send_tagged(int ns, uint16_t tag)
{
	struct sockaddr_in at = to(OUTSIDE, 9), from = to(NET_GUEST_IPV4, 0);
	struct sockaddr_ll link = {.sll_family = AF_PACKET, .sll_halen = ETH_ALEN};
	struct tagged f = {
		.eth = {NET_GATEWAY_MAC, NET_GUEST_MAC, htons(ETHERTYPE_VLAN)},
		.tag = htons(tag),
		.type = htons(ETHERTYPE_IP),
		.ip = {.version = 4, .ihl = 5, .ttl = 64, .protocol = IPPROTO_UDP},
		.udp = {.source = at.sin_port, .dest = at.sin_port},
		.text = "tagged",
	};

	f.ip.saddr = from.sin_addr.s_addr;
	f.ip.daddr = at.sin_addr.s_addr;
	f.ip.tot_len = htons(sizeof(f) - offsetof(struct tagged, ip));
	f.udp.len = htons(sizeof(f) - offsetof(struct tagged, udp));
	f.ip.check = checksum(&f.ip, sizeof(f.ip), 0);
	enter(ns);
	link.sll_ifindex = (int)if_nametoindex("eth0");
	scoped_fd int raw = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
	enter(host_ns);
	assert_int_equal(sendto(raw, &f, sizeof(f), 0, (void *)&link, sizeof(link)), sizeof(f));
}

/* Includes the tag that means no VLAN. */
static void vlan_tagged_frame_is_dropped(void **state)
{
	send_tagged(guests[0].ns, 0);
	send_tagged(guests[0].ns, 5);
	say(guests[0].ns, NET_GUEST_IPV4, "plain");
	assert_next("plain");
}

static void send_echo(int raw, uint16_t id)
{
	struct sockaddr_in at = to(NET_GATEWAY_IPV4, 0);
	struct icmphdr echo = {.type = ICMP_ECHO, .un.echo.id = htons(id)};

	echo.checksum = checksum(&echo, sizeof(echo), 0);
	assert_true(sendto(raw, &echo, sizeof(echo), 0, (void *)&at, sizeof(at)) > 0);
}

static unsigned long tracked_in_jail(void)
{
	static const char show[] = "cat /proc/sys/net/netfilter/nf_conntrack_count";

	return strtoul(output_in(guests[0].jail.ns, show), NULL, 10);
}

/* The jail's kernel tracks each echo as a connection. */
static void echo_flood_does_not_fill_conntrack(void **state)
{
	enum { ECHOES = 600 }; /* the tap queues at most 1000 */
	scoped_fd int raw = socket_in(guests[0].ns, SOCK_RAW, IPPROTO_ICMP);
	unsigned long before = tracked_in_jail();
	struct timespec from, until;

	clock_gettime(CLOCK_MONOTONIC, &from);
	for (uint16_t i = 0; i < ECHOES; i++)
		send_echo(raw, i);
	say(guests[0].ns, NET_GUEST_IPV4, "behind them");
	assert_next("behind them");
	clock_gettime(CLOCK_MONOTONIC, &until);
	assert_in_range(tracked_in_jail() - before, 1,
			100 + 100 * (unsigned long)(until.tv_sec - from.tv_sec + 1) + 2);
}

/* Runs `what` as the service's user in the host's namespace. Returns true when it returns 0. */
static bool as_service(int (*what)(int), int arg)
{
	int status;
	pid_t pid = fork();

	if (pid == 0)
		_exit(setresuid(SERVICE, SERVICE, SERVICE) < 0 ? 99 : what(arg));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) != 99);
	return status == 0;
}

static int connect_to_loopback(int arg)
{
	struct sockaddr_in at = to("127.0.0.1", 80);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	return connect(fd, (struct sockaddr *)&at, sizeof(at)) < 0;
}

static int send_a_datagram(int arg)
{
	struct sockaddr_in at = to(OUTSIDE, 7); /* a port where nobody records it */
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	return sendto(fd, "x", 1, 0, (struct sockaddr *)&at, sizeof(at)) < 0;
}

static int answer_a_client(int listening)
{
	int fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC);

	return fd < 0 || send(fd, "hello", 5, 0) != 5;
}

static void service_accepts_but_cannot_connect(void **state)
{
	scoped_fd int by_root = dial(host_ns, "127.0.0.1", 80);

	assert_true(by_root >= 0);
	assert_int_equal(send_a_datagram(0), 0);
	assert_false(as_service(connect_to_loopback, 0));
	assert_false(as_service(send_a_datagram, 0));
	scoped_fd int listening = listen_on(SOCK_STREAM, 8099);
	scoped_fd int client = dial(host_ns, "127.0.0.1", 8099);
	assert_true(client >= 0);
	assert_true(as_service(answer_a_client, listening));
	assert_string_equal(greeting(client), "hello");
}

/* One guest that provokes refusals without end does not use up those of the others. */
static void refusals_are_limited_per_slot(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(guests); i++)
		assert_refused(guests[i].ns, "172.16.0.1");
	const char *rules = output_in(host_ns, "nft list set inet ramet refusals");
	assert_non_null(strstr(rules, "\"rt0\""));
	assert_non_null(strstr(rules, "\"rt1\""));
}

static const char *host_rules(void)
{
	return output_in(host_ns, "nft list table inet ramet 2>&1");
}

static void restart_keeps_closed_slots(void **state)
{
	struct err e = {0};
	scoped_fd int connection = dial(guests[0].ns, OUTSIDE, 80);

	assert_true(connection >= 0);
	set_egress(1, false);
	net_close(&net, false);
	assert_non_null(strstr(host_rules(), "\"rt1\""));
	assert_int_equal(net_open(&net, &config, SERVICE, &e), 0);
	assert_non_null(strstr(host_rules(), "\"rt1\""));
	assert_non_null(strstr(host_rules(), "meta nfproto ipv6 drop"));
	assert_string_equal(greeting(connection), HOST);
	say_in_vain(guests[1].ns);
	say(guests[0].ns, NET_GUEST_IPV4, "from the open one");
	assert_next("from the open one");
	set_egress(1, true);
	assert_null(strstr(host_rules(), "\"rt1\""));
}

static void second_warden_is_refused(void **state)
{
	struct net second = {.ns = -1};
	struct err e = {0};

	assert_int_equal(net_open(&second, &config, SERVICE, &e), -EEXIST);
	assert_non_null(strstr(e.text, "another rametd"));
	assert_reaches(guests[0].ns, OUTSIDE, HOST);
}

/* Returns how many connections of the first guest the host tracks. */
static unsigned tracked(void)
{
	const char *list = output_in(host_ns, "cat /proc/net/nf_conntrack 2>/dev/null");
	unsigned n = 0;

	while ((list = strstr(list, "src=10.251.0.1 ")))
		list++, n++;
	return n;
}

static void connections_of_an_ended_vm_are_forgotten(void **state)
{
	scoped_fd int connection = dial(guests[0].ns, OUTSIDE, 80);
	struct err e = {0};

	assert_true(connection >= 0);
	if (access("/proc/net/nf_conntrack", R_OK) == 0)
		assert_true(tracked() > 0);
	assert_int_equal(net_forget(&net, 0, &e), 0);
	assert_int_equal(tracked(), 0);
	assert_reaches(guests[1].ns, OUTSIDE, HOST);
}

/* --- a namespace that is used again ---------------------------------------------------------- */

static void unused_slot_is_detected(void **state)
{
	struct guest g = {.jail.ns = -1};
	struct net_jail none = NET_JAIL_NONE;
	struct err e = {0};

	assert_true(net_was_used(&net, 99, &none)); /* no such link: it may have been used */
	assert_true(net_was_used(&net, 20, &g.jail));
	start_guest(&g, 20);
	assert_false(net_was_used(&net, 20, &g.jail));
	say(g.ns, NET_GUEST_IPV4, "first");
	assert_next("first");
	kill_guest(&g);
	assert_int_equal(net_jail_scrub(&net, &g.jail, &e), 0);
	/* Both kernels probe their neighbour some seconds after the last packet. */
	output_in(g.jail.ns, "ip neigh flush dev up0");
	output_in(host_ns, "ip neigh flush dev rt20");
	assert_true(net_was_used(&net, 20, &g.jail));
	start_guest(&g, 20);
	assert_false(net_was_used(&net, 20, &g.jail));
	end_guest(&g);
}

static void next_guest_has_a_working_network(void **state)
{
	for (int i = 0; i < 3; i++) {
		replace_guest(&guests[0], 0);
		assert_reaches(guests[0].ns, OUTSIDE, HOST);
		assert_reaches(guests[0].ns, OUTSIDE6, HOST6);
		assert_refused(guests[0].ns, "10.9.9.9");
	}
	say(guests[0].ns, NET_GUEST_IPV4, "through the rules of the tap");
	assert_next("through the rules of the tap");
	spoofed_ip_is_dropped(state);
}

static void connections_end_with_their_guest(void **state)
{
	int held[MOST], n = 0;

	while (n < MOST && (held[n] = dial(guests[0].ns, OUTSIDE, 80)) >= 0)
		n++;
	assert_true(n > 1);
	assert_true(tracked_in_jail() > 1);
	while (n > 0)
		close_fd(&held[--n]);
	kill_guest(&guests[0]);
	struct err e = {0};
	assert_int_equal(net_jail_scrub(&net, &guests[0].jail, &e), 0);
	assert_int_equal(tracked_in_jail(), 0);
	assert_int_equal(net_forget(&net, 0, &e), 0);
	start_guest(&guests[0], 0);
	assert_reaches(guests[0].ns, OUTSIDE, HOST);
}

static void neighbours_end_with_their_guest(void **state)
{
	static const char show[] = "ip neigh show dev tap0";
	struct err e = {0};

	assert_reaches(guests[0].ns, OUTSIDE, HOST);
	assert_reaches(guests[0].ns, OUTSIDE6, HOST6);
	assert_non_null(strstr(output_in(guests[0].jail.ns, show), NET_GUEST_IPV4));
	assert_non_null(strstr(output_in(guests[0].jail.ns, show), ":52:41ff:fe4d:4554"));
	kill_guest(&guests[0]);
	assert_int_equal(net_jail_scrub(&net, &guests[0].jail, &e), 0);
	assert_string_equal(output_in(guests[0].jail.ns, show), "");
	start_guest(&guests[0], 0);
}

/* Starts a VM whose process only has the tap; returns that. */
static int open_bare(uint32_t slot, struct net_jail *j)
{
	struct err e = {0};
	int tap = net_jail_open(&net, slot, JAIL_UID, j, &e);

	if (tap < 0)
		fail_msg("%s", e.text);
	return tap;
}

/* Returns whether the tap has a frame for the guest itself. The jail's kernel also announces itself
 * to multicast addresses. */
static bool has_frame(int tap)
{
	char frame[2048];

	for (ssize_t n; (n = read(tap, frame, sizeof(frame))) > 12;)
		if (!(frame[12] & 1)) /* the virtio header is before the address */
			return true;
	return false;
}

static void send_to_guest(const struct net_jail *j)
{
	struct sockaddr_in at = to(NET_GUEST_IPV4, 9);
	scoped_fd int fd = socket_in(j->ns, SOCK_DGRAM, 0);

	assert_int_equal(sendto(fd, "secret", 6, 0, (struct sockaddr *)&at, sizeof(at)), 6);
}

static void frames_end_with_their_guest(void **state)
{
	struct net_jail j = NET_JAIL_NONE;
	struct err e = {0};
	int tap = open_bare(21, &j);

	output_in(j.ns, "ip neigh add " NET_GUEST_IPV4 " lladdr 02:52:41:4d:45:54 dev tap0");
	send_to_guest(&j);
	assert_true(has_frame(tap));
	for (int i = 0; i < 2000; i++) /* more than the tap queues */
		send_to_guest(&j);
	close_fd(&tap);
	assert_int_equal(net_jail_scrub(&net, &j, &e), 0);
	tap = open_bare(21, &j);
	assert_false(has_frame(tap));
	close_fd(&tap);
	net_jail_close(&j);
}

static void tap_that_is_still_open_is_not_shared(void **state)
{
	struct net_jail j = NET_JAIL_NONE;
	struct stat before, after;
	struct err e = {0};
	int first = open_bare(21, &j);

	assert_int_equal(fstat(j.ns, &before), 0);
	assert_int_equal(net_jail_scrub(&net, &j, &e), 0);
	log_init("net", LOG_ERROR); /* a warning follows */
	int second = open_bare(21, &j);
	log_init("net", LOG_WARN);
	assert_int_equal(fstat(j.ns, &after), 0);
	assert_int_not_equal(before.st_ino, after.st_ino);
	close_fd(&first);
	close_fd(&second);
	net_jail_close(&j);
}

static void vanished_tap_is_not_replaced(void **state)
{
	struct net_jail j = NET_JAIL_NONE;
	struct stat before, after;
	int tap = open_bare(21, &j);

	assert_int_equal(fstat(j.ns, &before), 0);
	close_fd(&tap);
	output_in(j.ns, "ip link delete tap0");
	log_init("net", LOG_ERROR);
	tap = open_bare(21, &j);
	log_init("net", LOG_WARN);
	assert_int_equal(fstat(j.ns, &after), 0);
	assert_int_not_equal(before.st_ino, after.st_ino);
	assert_non_null(strstr(output_in(j.ns, "nft list ruleset"), "table netdev ramet"));
	close_fd(&tap);
	net_jail_close(&j);
}

/* Incomplete datagrams would be completed with fragments of the next guest. */
static void namespace_with_fragments_is_not_used_again(void **state)
{
	static char big[3000];
	struct err e = {0};

	for (int v6 = 0; v6 < 2; v6++) {
		struct sockaddr_in at = to(OUTSIDE, 7);
		struct sockaddr_in6 at6 = to6(OUTSIDE6, 7);
		scoped_fd int fd =
			family_socket_in(guests[0].ns, v6 ? AF_INET6 : AF_INET, SOCK_DGRAM, 0);
		ssize_t n = v6 ? sendto(fd, big, sizeof(big), 0, (void *)&at6, sizeof(at6))
			       : sendto(fd, big, sizeof(big), 0, (void *)&at, sizeof(at));

		assert_int_equal(n, sizeof(big));
		say(guests[0].ns, NET_GUEST_IPV4, "behind it");
		assert_next("behind it");
		kill_guest(&guests[0]);
		assert_int_equal(net_jail_scrub(&net, &guests[0].jail, &e), -EBUSY);
		net_jail_close(&guests[0].jail);
		start_guest(&guests[0], 0);
	}
	replace_guest(&guests[0], 0);
}

/* Ends with the host's namespace entered, whatever happened. */
static void host_namespace_is_kept(void **state)
{
	struct stat mine, host;

	assert_int_equal(stat("/proc/self/ns/net", &mine), 0);
	assert_int_equal(fstat(host_ns, &host), 0);
	assert_int_equal(mine.st_ino, host.st_ino);
}

static bool link_is_there(const char *name)
{
	return if_nametoindex(name) != 0;
}

static void links_end_with_the_jail(void **state)
{
	struct timespec pause = {.tv_nsec = 5000000};

	assert_true(link_is_there("rt0"));
	end_guest(&guests[0]);
	start_guest(&guests[0], 0); /* immediately: the old link may still exist */
	assert_reaches(guests[0].ns, OUTSIDE, HOST);
	end_guest(&guests[0]);
	for (int i = 0; i < WAIT_MS / 5 && link_is_there("rt0"); i++)
		nanosleep(&pause, NULL);
	assert_false(link_is_there("rt0"));
	start_guest(&guests[0], 0);
}

static void jail_namespace_has_tap_and_rules(void **state)
{
	const char *links = output_in(guests[0].jail.ns, "ip -d addr");

	assert_non_null(strstr(links, "link/ether 02:52:41:4d:45:01"));
	assert_non_null(strstr(links, "inet 192.168.252.1/30"));
	assert_non_null(strstr(links, "inet 10.251.0.1/31"));
	assert_non_null(strstr(links, "user 310000"));
	const char *rules = output_in(guests[0].jail.ns, "nft list ruleset 2>&1");
	assert_non_null(strstr(rules, "table netdev ramet"));
	assert_non_null(strstr(rules, "masquerade"));
}

static void only_needed_links_forward(void **state)
{
	static const char show[] = "cat /proc/sys/net/ipv4/ip_forward "
				   "/proc/sys/net/ipv4/conf/out0/forwarding "
				   "/proc/sys/net/ipv4/conf/rt0/forwarding "
				   "/proc/sys/net/ipv4/conf/other0/forwarding | tr -d '\\n'";

	assert_string_equal(output_in(host_ns, show), "0110");
}

static void close_removes_everything(void **state)
{
	struct err e = {0};

	end_guest(&guests[0]);
	end_guest(&guests[1]);
	net_close(&net, true);
	assert_non_null(strstr(host_rules(), "No such file or directory"));
	assert_string_equal(output_in(host_ns, "cat /proc/sys/net/ipv4/conf/out0/forwarding"),
			    "0\n");
	assert_string_equal(output_in(host_ns, "cat /proc/sys/net/ipv6/conf/all/forwarding"),
			    "0\n");
	assert_int_equal(net_open(&net, &config, SERVICE, &e), 0);
	start_guest(&guests[0], 0);
	start_guest(&guests[1], 1);
}

static double ms_since(const struct timespec *from)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)(now.tv_sec - from->tv_sec) * 1e3 +
	       (double)(now.tv_nsec - from->tv_nsec) / 1e6;
}

static void jail_network_is_cheap(void **state)
{
	enum { TIMES = 10 };
	struct net_jail j = NET_JAIL_NONE;
	struct timespec from;
	struct err e = {0};
	double first = 0, again = 0;

	for (uint32_t i = 0; i < TIMES; i++) {
		net_jail_close(&j);
		clock_gettime(CLOCK_MONOTONIC, &from);
		int tap = open_bare(30 + i, &j);
		first += ms_since(&from);
		close_fd(&tap);
		clock_gettime(CLOCK_MONOTONIC, &from);
		assert_int_equal(net_jail_scrub(&net, &j, &e), 0);
		tap = open_bare(30 + i, &j);
		again += ms_since(&from);
		close_fd(&tap);
	}
	net_jail_close(&j);
	print_message("a jail's network takes %.2f ms, used again %.2f ms\n", first / TIMES,
		      again / TIMES);
}

/* --- setup and teardown ---------------------------------------------------------------------- */

static void make_world(void)
{
	outside_ns = new_ns();
	run("ip link set lo up");
	host_ns = new_ns();
	run("ip link set lo up && echo 0 >/proc/sys/net/ipv4/ip_forward && "
	    "echo 0 >/proc/sys/net/ipv6/conf/all/forwarding");
	run("ip link add out0 type veth peer name out1 netns /proc/%d/fd/%d", getpid(), outside_ns);
	run("ip link add other0 type veth peer name other1");
	run("ip addr add " HOST "/24 dev out0 && ip link set out0 up && "
	    "ip route add default via " OUTSIDE " && "
	    "ip addr add " HOST6 "/64 dev out0 nodad && ip route add default via " OUTSIDE6);
	enter(outside_ns);
	run("ip addr add " OUTSIDE "/24 dev out1 && ip addr add 10.9.9.9/32 dev out1 && "
	    "ip addr add 10.8.0.1/32 dev out1 && ip addr add 169.254.169.254/32 dev out1 && "
	    "ip addr add " OUTSIDE6 "/64 dev out1 nodad && "
	    "ip addr add fd99::1/128 dev out1 nodad && "
	    "ip addr add fd00:8::1/128 dev out1 nodad && ip link set out1 up");
	enter(host_ns);
}

static int set_up(void **state)
{
	struct err e = {0};

	log_init("net", LOG_WARN);
	make_world();
	config_defaults(&config);
	snprintf(config.network, sizeof(config.network), "10.251.0.0/17");
	snprintf(config.allow, sizeof(config.allow), "10.8.0.0/16, fd00:8::/32");
	snprintf(config.dns, sizeof(config.dns), OUTSIDE);
	config.net_connections = MOST;
	if (pipe2(arrived, O_CLOEXEC | O_DIRECT) < 0)
		return -1;
	servers[0] = serve(outside_ns);
	servers[1] = serve(host_ns);
	if (net_open(&net, &config, SERVICE, &e) < 0)
		fail_msg("%s", e.text);
	start_guest(&guests[0], 0);
	start_guest(&guests[1], 1);
	return 0;
}

static int tear_down(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(guests); i++)
		end_guest(&guests[i]);
	for (size_t i = 0; i < ARRAY_LEN(servers); i++) {
		kill(servers[i], SIGKILL);
		waitpid(servers[i], NULL, 0);
	}
	net_close(&net, true);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(jail_namespace_has_tap_and_rules),
		cmocka_unit_test(guest_reaches_outside_as_the_host),
		cmocka_unit_test(guest_reaches_outside_over_ipv6),
		cmocka_unit_test(only_needed_links_forward),
		cmocka_unit_test(gateway_answers_dns),
		cmocka_unit_test(private_ranges_are_refused),
		cmocka_unit_test(allowed_range_is_reachable),
		cmocka_unit_test(host_is_unreachable),
		cmocka_unit_test(guests_cannot_reach_each_other),
		cmocka_unit_test(service_accepts_but_cannot_connect),
		cmocka_unit_test(refusals_are_limited_per_slot),
		cmocka_unit_test(inbound_packets_are_dropped),
		cmocka_unit_test(opening_an_open_slot_changes_no_rules),
		cmocka_unit_test(closed_slot_sends_nothing),
		cmocka_unit_test(spoofed_ip_is_dropped),
		cmocka_unit_test(spoofed_mac_is_dropped),
		cmocka_unit_test(unknown_connection_is_reset),
		cmocka_unit_test(concurrent_connections_are_limited),
		cmocka_unit_test(connections_ended_in_the_jail_only_still_count),
		cmocka_unit_test(other_protocols_are_refused),
		cmocka_unit_test(vlan_tagged_frame_is_dropped),
		cmocka_unit_test(echo_flood_does_not_fill_conntrack),
		cmocka_unit_test(close_removes_everything),
		cmocka_unit_test(restart_keeps_closed_slots),
		cmocka_unit_test(second_warden_is_refused),
		cmocka_unit_test(connections_of_an_ended_vm_are_forgotten),
		cmocka_unit_test(unused_slot_is_detected),
		cmocka_unit_test(next_guest_has_a_working_network),
		cmocka_unit_test(connections_end_with_their_guest),
		cmocka_unit_test(neighbours_end_with_their_guest),
		cmocka_unit_test(frames_end_with_their_guest),
		cmocka_unit_test(tap_that_is_still_open_is_not_shared),
		cmocka_unit_test(vanished_tap_is_not_replaced),
		cmocka_unit_test(namespace_with_fragments_is_not_used_again),
		cmocka_unit_test(host_namespace_is_kept),
		cmocka_unit_test(links_end_with_the_jail),
		cmocka_unit_test(jail_network_is_cheap),
	};

	if (geteuid() != 0 || access("/dev/net/tun", R_OK | W_OK) < 0) {
		print_message("skipped: needs root and /dev/net/tun\n");
		return 77;
	}
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
