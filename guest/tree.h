// SPDX-License-Identifier: Apache-2.0
/* What AGENT_TREE answers: folders walked in order, files hashed. In a process of its own. */
#ifndef RAMET_GUEST_TREE_H
#define RAMET_GUEST_TREE_H

#include "guest/frame.h"

/*
 * A worker's `run` (worker.h) for a struct tree_request. Memory: the names of the folders on the
 * way to where it is, NAMES_MAX bytes of them at most, and half as much again to sort them. A
 * descriptor is open for each of these folders.
 */
__attribute__((noreturn)) void tree_serve(const void *request);

#endif
