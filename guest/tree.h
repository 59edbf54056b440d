// SPDX-License-Identifier: Apache-2.0
/* What AGENT_TREE answers: folders walked in order, files hashed. In a process of its own. */
#ifndef RAMET_GUEST_TREE_H
#define RAMET_GUEST_TREE_H

#include "guest/frame.h"

/*
 * Writes `unsent`, then the whole answer to the socket `fd`, and ends the process: with 0 when the
 * answer is complete, also one that says what failed. Memory: the names of the folders on the way
 * to where it is, TREE_NAMES_MAX bytes of them at most, and half as much again to sort them. A
 * descriptor is open for each of these folders.
 */
__attribute__((noreturn)) void tree_serve(const struct tree_request *r, int fd, const void *unsent,
					  size_t unsent_len);

#define TREE_NAMES_MAX (64u << 20)

#endif
