// SPDX-License-Identifier: Apache-2.0
/*
 * `rametctl backup`, `restore` and `check`: the catalogue and the files of all Spaces. A backup is
 * a folder with `catalogue.db` and `spaces/ID`, like a state_dir. The catalogue is written last: a
 * folder without it is no complete backup.
 */
#ifndef RAMET_ORCHESTRATOR_OPERATOR_BACKUP_H
#define RAMET_ORCHESTRATOR_OPERATOR_BACKUP_H

#include <stdbool.h>

#include "orchestrator/config/config.h"

/* Where the catalogue of this host is from. */
struct catalogue_source {
	/* Writes a consistent copy to the new file `path`. Returns 0, or -errno with *e filled. */
	int (*copy)(void *arg, const char *path, struct err *e);
	void *arg;
	bool online; /* the service runs: Spaces may be resumed and deleted meanwhile */
};

/* All return the exit status, and print errors and what they did. */
int backup_run(const struct config *config, const struct catalogue_source *source, const char *dir);
/* `dir`: a backup; NULL: this host. */
int check_run(const struct config *config, const struct catalogue_source *source, const char *dir);
/* Needs a state_dir without a catalogue and Spaces, and no rametd. With `skip_damaged`, restores
 * the rest if Spaces of the backup are damaged. */
int restore_run(const struct config *config, const char *dir, bool skip_damaged);

/* Prints the error of a command that failed, after what it has printed so far. Returns the exit
 * status. */
int command_failed(const struct err *e);
/* Writes a copy of a catalogue that no process has open. */
int catalogue_copy(const char *from, const char *to, struct err *e);
/* Copies what can be read from `fd` to the new file `path`, which only its owner can read, and
 * flushes it. */
int file_copy(int fd, const char *path, struct err *e);

#endif
