// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/images/bases.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "orchestrator/images/image-dir.h"

int base_name(int fd, char name[static BASE_NAME_ROOM], struct err *e)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return err_set(e, errno, "stat its root file system");
	snprintf(name, BASE_NAME_ROOM, "%llx-%llx-%llx-%llx.%lx", (unsigned long long)st.st_dev,
		 (unsigned long long)st.st_ino, (unsigned long long)st.st_size,
		 (unsigned long long)st.st_mtim.tv_sec, (unsigned long)st.st_mtim.tv_nsec);
	return 0;
}

/* Opens the record of the file. Returns a descriptor, or -errno with *e filled. */
static int open_record(const char *state_dir, int fd, int flags, struct err *e)
{
	char name[BASE_NAME_ROOM], record[BASE_NAME_ROOM + 1];
	scoped_fd int bases = state_dir_open(state_dir, "bases", e);

	if (bases < 0 || base_name(fd, name, e) < 0)
		return e->code;
	snprintf(record, sizeof(record), ".%s", name);
	int found = openat(bases, record, flags | O_CLOEXEC | O_NOFOLLOW, 0400);
	return found < 0 ? err_set(e, errno, "open %s/bases/%s", state_dir, record) : found;
}

int base_remember(const char *state_dir, int fd, struct err *e)
{
	scoped_fd int record = open_record(state_dir, fd, O_RDONLY | O_CREAT, e);

	return record < 0 ? record : 0;
}

int base_is_known(const char *state_dir, int fd, struct err *e)
{
	scoped_fd int record = open_record(state_dir, fd, O_RDONLY, e);

	return record >= 0 ? 1 : record == -ENOENT ? 0 : record;
}
