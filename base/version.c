// SPDX-License-Identifier: Apache-2.0
#include "base/version.h"

#include <errno.h>

int version_check(const char *what, uint32_t version, uint32_t oldest, uint32_t newest,
		  struct err *e)
{
	const char *whose = version > newest ? "a newer" : "an older";

	if (version >= oldest && version <= newest)
		return 0;
	if (oldest == newest)
		return err_say(e, ENOTSUP,
			       "%s has version %u, of %s Ramet; this one supports only %u", what,
			       version, whose, newest);
	return err_say(e, ENOTSUP, "%s has version %u, of %s Ramet; this one supports %u to %u",
		       what, version, whose, oldest, newest);
}
