// SPDX-License-Identifier: Apache-2.0
/*
 * Gives a fuzz target the content of each file in some folders, without libFuzzer:
 * fuzz_NAME FOLDER... . A target that finds a fault aborts; the input's path was printed before.
 */
#include <dirent.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Returns the number of inputs: 0 or 1. */
static unsigned replay(int folder, const char *path, const char *name)
{
	scoped_fd int fd = openat(folder, name, O_RDONLY | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		err(1, "open %s/%s", path, name);
	if (!S_ISREG(st.st_mode))
		return 0;
	/* Of exactly the input's size, so that the address sanitizer sees a read behind its end. */
	scoped_free uint8_t *data = malloc(st.st_size);
	if (!data || read(fd, data, st.st_size) != st.st_size)
		err(1, "read %s/%s", path, name);
	printf("%s/%s\n", path, name);
	fflush(stdout);
	LLVMFuzzerTestOneInput(data, st.st_size);
	return 1;
}

static unsigned replay_folder(const char *path)
{
	DIR *dir = opendir(path);
	unsigned n = 0;

	if (!dir)
		err(1, "open the folder %s", path);
	for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
		n += replay(dirfd(dir), path, entry->d_name);
	closedir(dir);
	return n;
}

int main(int argc, char **argv)
{
	unsigned n = 0;

	for (int i = 1; i < argc; i++)
		n += replay_folder(argv[i]);
	if (n == 0)
		errx(1, "there are no inputs in the folders");
	return 0;
}
