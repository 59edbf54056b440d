// SPDX-License-Identifier: Apache-2.0
/* AGENT_TREE: walks folders in order and hashes files, in a worker. */
#ifndef RAMET_GUEST_FILES_TREE_H
#define RAMET_GUEST_FILES_TREE_H

#include "guest/frame.h"

/* Serves a struct tree_request; a worker's `run` (worker.h). */
__attribute__((noreturn)) void tree_serve(const void *request);

#endif
