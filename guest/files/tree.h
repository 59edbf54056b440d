// SPDX-License-Identifier: Apache-2.0
/* AGENT_TREE: walks folders in order and hashes files, in a worker. */
#ifndef RAMET_GUEST_FILES_TREE_H
#define RAMET_GUEST_FILES_TREE_H

#include "guest/frame.h"

/*
 * Serves a struct tree_request; a worker's `run` (worker.h). Needs memory for the names in the
 * folders on the current path, at most NAMES_MAX bytes and half as much again to sort them, and an
 * open descriptor for each of these folders.
 */
__attribute__((noreturn)) void tree_serve(const void *request);

#endif
