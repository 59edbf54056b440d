// SPDX-License-Identifier: Apache-2.0
/* Connections that a copied guest has no right to: they are those of the guest it was made of. */
#ifndef RAMET_GUEST_TCP_RESET_H
#define RAMET_GUEST_TCP_RESET_H

/*
 * Ends the TCP sockets whose peer is reached through the interface `link`, or not at all any more:
 * their owners see ECONNABORTED at once. Those within the guest, and listeners, stay; those of
 * other network namespaces (containers) are left to the host, which resets what it does not know.
 * Needs the kernel's INET_DIAG_DESTROY. The number of sockets that were ended, or -errno.
 */
int tcp_reset(const char *link);

#endif
