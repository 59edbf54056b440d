// SPDX-License-Identifier: Apache-2.0
/*
 * The network that a guest sees. It is the same in every sandbox, so that a copy of a guest needs
 * no new address. The tap is in the VM's own network namespace. That namespace has the gateway's
 * addresses, forwards only packets from the guest's addresses, and translates those to an address
 * of the slot.
 */
#ifndef RAMET_PROTO_NET_H
#define RAMET_PROTO_NET_H

/* Locally administered addresses (IEEE 802: second lowest bit of the first byte). */
#define NET_GUEST_MAC                                                                              \
	{                                                                                          \
		0x02, 0x52, 0x41, 0x4d, 0x45, 0x54                                                 \
	}
#define NET_GATEWAY_MAC                                                                            \
	{                                                                                          \
		0x02, 0x52, 0x41, 0x4d, 0x45, 0x01                                                 \
	}

#define NET_MTU 1500

#define NET_GUEST_IPV4	 "192.168.252.2"
#define NET_GATEWAY_IPV4 "192.168.252.1" /* also the name server: forwarded to the host's */
#define NET_PREFIX_IPV4	 30

/* The guest forms its address from the prefix, which the device advertises, and its MAC
 * (RFC 4862). The tap forms its link-local address in the same way. */
#define NET_GUEST_IPV6	       "fd52:616d:6574::52:41ff:fe4d:4554"
#define NET_GUEST_LINK_LOCAL   "fe80::52:41ff:fe4d:4554"
#define NET_GATEWAY_IPV6       "fd52:616d:6574::1"
#define NET_GATEWAY_LINK_LOCAL "fe80::52:41ff:fe4d:4501" /* the guest's router */
#define NET_PREFIX_IPV6	       64

#define NET_TAP "tap0" /* in the VM's namespace */

#endif
