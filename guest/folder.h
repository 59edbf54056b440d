// SPDX-License-Identifier: Apache-2.0
/* Folders made and removed, in workers. */
#ifndef RAMET_GUEST_FOLDER_H
#define RAMET_GUEST_FOLDER_H

#include "base/err.h"

/* Makes the folders on the way to `path` (absolute) that are missing, with mode 0755. */
int folder_make_parents(const char *path, struct err *e);
/* Removes the folder with all that is in it. What is mounted in there, and the root, stay: -EBUSY.
 * When it fails in the middle, part of it is gone. */
int folder_remove(const char *path, struct err *e);

#endif
