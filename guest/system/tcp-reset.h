// SPDX-License-Identifier: Apache-2.0
/* Ends the connections that a copied guest shares with the guest it is a copy of. */
#ifndef RAMET_GUEST_SYSTEM_TCP_RESET_H
#define RAMET_GUEST_SYSTEM_TCP_RESET_H

/*
 * Ends the TCP sockets whose peer is reached through the interface `link` or is unreachable: their
 * owners see ECONNABORTED at once. Connections within the guest and listeners stay. Connections of
 * other network namespaces (containers) are left to the host, which resets those it does not know.
 * Needs the kernel's INET_DIAG_DESTROY. Returns the number of ended sockets or -errno.
 */
int tcp_reset(const char *link);

#endif
