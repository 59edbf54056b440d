// SPDX-License-Identifier: Apache-2.0
#include "guest/files/staged.h"

#include <errno.h>
#include <sys/mman.h>

#include "guest/files/worker.h"

struct staged_file *staged_new(struct err *e)
{
	void *file = mmap(NULL, sizeof(struct staged_file), PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (file == MAP_FAILED) {
		err_say(e, ENOMEM, "no memory for a staged file");
		return NULL;
	}
	return file;
}

static void remove_run(const void *request)
{
	/* The memory is shared: the agent may have unmapped it, this process has not. */
	staged_remove((struct staged_file *)(uintptr_t)request);
}

void staged_free(struct staged_file *f)
{
	/* In a worker if possible, since unlinking a big file takes a while. */
	const struct worker_job job = {.run = remove_run, .request = f};
	struct err e;

	if (f->state == STAGED_OPEN && worker_start(NULL, &job, &e) < 0)
		staged_remove(f);
	munmap(f, sizeof(*f));
}
