// SPDX-License-Identifier: Apache-2.0
/* Descriptors that go with a message of a Unix socket. */
#ifndef RAMET_BASE_MESSAGE_FDS_H
#define RAMET_BASE_MESSAGE_FDS_H

#include <string.h>
#include <sys/socket.h>

/* Declares room for the control data of `n` descriptors. */
#define MESSAGE_FDS_ROOM(name, n) _Alignas(struct cmsghdr) char name[CMSG_SPACE(sizeof(int) * (n))]

/* Adds descriptors, which the caller keeps. `room` must be there until the message is sent. */
static inline void message_put_fds(struct msghdr *h, void *room, const int *fds, size_t n)
{
	if (!n)
		return;
	h->msg_control = memset(room, 0, CMSG_SPACE(sizeof(int) * n));
	h->msg_controllen = CMSG_SPACE(sizeof(int) * n);
	struct cmsghdr *c = CMSG_FIRSTHDR(h);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int) * n);
	memcpy(CMSG_DATA(c), fds, sizeof(int) * n);
}

/* Makes room for at most `n` descriptors; the kernel closes further ones. Uses CMSG_LEN, since the
 * padding that CMSG_SPACE adds may have room for one more. */
static inline void message_want_fds(struct msghdr *h, void *room, size_t n)
{
	h->msg_control = room;
	h->msg_controllen = CMSG_LEN(sizeof(int) * n);
}

/* Copies the descriptors of a received message, which are open in this process whatever the
 * message says. Returns how many. */
static inline unsigned message_take_fds(struct msghdr *h, int *fds)
{
	unsigned total = 0;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(h); c; c = CMSG_NXTHDR(h, c)) {
		size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		memcpy(fds + total, CMSG_DATA(c), n * sizeof(int));
		total += (unsigned)n;
	}
	return total;
}

#endif
