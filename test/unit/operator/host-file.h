// SPDX-License-Identifier: Apache-2.0
#ifndef RAMET_TEST_UNIT_OPERATOR_HOST_FILE_H
#define RAMET_TEST_UNIT_OPERATOR_HOST_FILE_H

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

/* Writes `text` to the file `name` below `root`, and creates the folders that are missing. */
static inline void put_host_file(const char *root, const char *name, const char *text)
{
	char path[512];

	snprintf(path, sizeof(path), "%s/%s", root, name);
	for (char *slash = strchr(path + strlen(root) + 1, '/'); slash;
	     slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		mkdir(path, 0700);
		*slash = '/';
	}
	scoped_fd int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
}

#endif
