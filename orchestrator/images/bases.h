// SPDX-License-Identifier: Apache-2.0
/*
 * The root file systems of templates, by identity. A VM process names the file that its disk is
 * based on, and Spaces share that file without counting its size. So the service must know whether
 * a file is the root file system of a template. STATE_DIR/bases has an empty file .NAME for each,
 * and a copy NAME once a Space needs it. All functions are for workers.
 */
#ifndef RAMET_ORCHESTRATOR_IMAGES_BASES_H
#define RAMET_ORCHESTRATOR_IMAGES_BASES_H

#include "base/err.h"

#define BASE_NAME_ROOM 96

/* Writes the name of an open file: the same file always has the same name, and different files
 * never share one. Returns 0, or -errno with *e filled. */
int base_name(int fd, char name[static BASE_NAME_ROOM], struct err *e);
/* Records that the file is a template's root file system, for as long as VMs may use it: also after
 * it was replaced. Returns 0, or -errno with *e filled. */
int base_remember(const char *state_dir, int fd, struct err *e);
/* Returns 1 if base_remember was called for the file, else 0; or -errno with *e filled. */
int base_is_known(const char *state_dir, int fd, struct err *e);

#endif
