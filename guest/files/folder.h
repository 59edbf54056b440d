// SPDX-License-Identifier: Apache-2.0
/* Creates and removes folders, in workers. */
#ifndef RAMET_GUEST_FILES_FOLDER_H
#define RAMET_GUEST_FILES_FOLDER_H

#include "base/err.h"
#include "proto/agent.h"

/* Copies an absolute path without the slashes at its end: mkdir(2) and rename(2) get the name
 * before them. */
void folder_trim(char out[static AGENT_PATH_MAX + 1], const char *path);
/* Creates the missing parents of `path` (absolute) with mode 0755. */
int folder_make_parents(const char *path, struct err *e);
/* Removes the folder with its content. Refuses mount points and the root folder with -EBUSY. A
 * failure may leave part of the content removed. */
int folder_remove(const char *path, struct err *e);

#endif
