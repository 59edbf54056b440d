// SPDX-License-Identifier: Apache-2.0
/* Versions of protocols and files; proto/versions.h lists them. */
#ifndef RAMET_BASE_VERSION_H
#define RAMET_BASE_VERSION_H

#include <stdint.h>

#include "base/err.h"

/* Returns 0 for a version from `oldest` to `newest`, otherwise -ENOTSUP. The message then begins
 * with `what`, which names the protocol or file, and says whether a newer or an older Ramet wrote
 * it. */
int version_check(const char *what, uint32_t version, uint32_t oldest, uint32_t newest,
		  struct err *e);

#endif
