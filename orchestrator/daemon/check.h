// SPDX-License-Identifier: Apache-2.0
/* `rametd --check`: finds out whether rametd would start with these settings, as far as files show
 * that. */
#ifndef RAMET_ORCHESTRATOR_DAEMON_CHECK_H
#define RAMET_ORCHESTRATOR_DAEMON_CHECK_H

#include <stdbool.h>

#include "base/err.h"
#include "orchestrator/config/config.h"

/*
 * Returns 0, or -errno with *e filled as a start would fail. Changes nothing on the host, but this
 * process, if it is root, becomes the account of the service for good, so that it reads what the
 * service can read. Another account may not be able to read as much: *unread is the number of
 * checks that were left out for that reason, and notify(arg, sentence) names each.
 */
int check_start(const struct config *config, unsigned *unread,
		void (*notify)(void *arg, const char *sentence), void *arg, struct err *e);

#endif
