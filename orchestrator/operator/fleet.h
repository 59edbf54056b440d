// SPDX-License-Identifier: Apache-2.0
/* `rametctl fleet`, which makes a fleet's certificates and makes this machine a host of it, and
 * `rametctl host`, for the fleet's hosts. */
#ifndef RAMET_ORCHESTRATOR_OPERATOR_FLEET_H
#define RAMET_ORCHESTRATOR_OPERATOR_FLEET_H

#include "base/err.h"
#include "orchestrator/config/config.h"
#include "orchestrator/fleet/table.h"

#define FLEET_TABLES  "/var/lib/ramet-fleet"
#define FLEET_PROGRAM "/usr/lib/ramet/ramet-fleet"

/* argv[0] is "fleet" or "host". Both return rametctl's exit status. */
int fleet_command(const struct config *config, int argc, char *const argv[]);
int host_command(const struct config *config, int argc, char *const argv[]);
/* Print what these commands do, and return the exit status. */
int fleet_help(void);
int host_help(void);

/* Returns `word`, if it is there; or else the folder with the table of hosts that the settings
 * name, or the one of the package. */
const char *hosts_folder(const struct config *config, const char *word);

/* Reads the table of hosts in the folder; the caller frees it. Returns 0, or -errno with *e filled.
 */
int hosts_read(struct fleet_table **out, const char *tables, struct err *e);
/* Prints a configuration of HAProxy for the hosts in the table. Every host must have the settings
 * `config`. */
int haproxy_show(const struct config *config, const char *tables, struct err *e);
/* Prints the table of hosts in the folder, with what they say to the service of this one. Returns
 * 0, or -errno with *e filled. */
int hosts_show(const struct config *config, const char *tables, struct err *e);
/* Returns the list with which the service answers a command without arguments, in rametctl.c. The
 * caller frees it. NULL: no service runs, or it refuses; *e is filled. */
char *service_says(const struct config *config, const char *command, struct err *e);
/* Returns the option after the two words of the command; NULL if there is none. No command has an
 * option there; "-" is the standard input. */
const char *fleet_option(int argc, char *const argv[]);
/* Returns the exit status of the command in `argv`, which returned `ret`, after it has printed *e;
 * without a text there, what is wrong with the words, and the usage. */
int fleet_ended(int ret, const struct err *e, int argc, char *const argv[], const char *usage);

#endif
