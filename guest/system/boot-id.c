// SPDX-License-Identifier: Apache-2.0
#include "guest/system/system.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

#define TEXT_LEN 37 /* with its newline */

int boot_id_mount(const char *file, struct err *e)
{
	char text[TEXT_LEN];
	scoped_fd int from = open(BOOT_ID_PATH, O_RDONLY | O_CLOEXEC);

	if (from < 0 || read(from, text, sizeof(text)) != sizeof(text))
		return err_set(e, from < 0 ? errno : EIO, "read %s", BOOT_ID_PATH);
	scoped_fd int to = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0444);
	if (to < 0 || write(to, text, sizeof(text)) != sizeof(text))
		return err_set(e, to < 0 ? errno : ENOSPC, "write %s", file);
	if (mount(file, BOOT_ID_PATH, NULL, MS_BIND, NULL) < 0)
		return err_set(e, errno, "mount %s", BOOT_ID_PATH);
	return 0;
}

/* Generates a UUID of version 4, like the kernel's. */
static int random_text(char text[TEXT_LEN + 1])
{
	uint8_t id[16];
	size_t at = 0;

	if (getrandom(id, sizeof(id), 0) != sizeof(id))
		return -EIO;
	id[6] = (uint8_t)((id[6] & 0x0f) | 0x40);
	id[8] = (uint8_t)((id[8] & 0x3f) | 0x80);
	for (size_t i = 0; i < sizeof(id); i++) {
		bool dash = i == 4 || i == 6 || i == 8 || i == 10;

		at += (size_t)sprintf(text + at, "%s%02x", dash ? "-" : "", id[i]);
	}
	text[at] = '\n';
	return 0;
}

int boot_id_renew(void)
{
	char text[TEXT_LEN + 1];
	int bad = random_text(text);

	if (bad)
		return bad;
	scoped_fd int fd = open(BOOT_ID_PATH, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	/* Overwrites the id in place, with the same length, so that no reader sees half an id. */
	ssize_t n = pwrite(fd, text, TEXT_LEN, 0);
	return n == TEXT_LEN ? 0 : n < 0 ? -errno : -EIO;
}
