// SPDX-License-Identifier: Apache-2.0
#include "base/file-sum.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/crc32c.h"
#include "base/file-id.h"
#include "base/file.h"
#include "base/num.h"

#define PAGE	     4096u
#define BUFFER_BYTES (1u << 20)
/* entries; a sum whose entry another file takes is computed again when needed */
#define KNOWN 65536u

/* --- walk ----------------------------------------------------------------------------------- */

int file_walk_begin(struct file_walk *w, int in, int out, uint64_t bytes, struct err *e)
{
	*w = (struct file_walk){.in = in, .out = out, .bytes = bytes};
	w->buffer = malloc(BUFFER_BYTES);
	if (!w->buffer)
		return err_set(e, ENOMEM, "allocate a buffer of %u bytes", BUFFER_BYTES);
	if (out >= 0 && ftruncate(out, (off_t)bytes) < 0)
		return err_set(e, errno, "set the size of the copy to %llu bytes",
			       (unsigned long long)bytes);
	return 0;
}

void file_walk_end(struct file_walk *w)
{
	free(w->buffer);
	w->buffer = NULL;
}

static void add(struct file_walk *w, uint64_t page, const uint8_t *p, size_t len)
{
	uint8_t number[8];

	for (int i = 0; i < 8; i++)
		number[i] = (uint8_t)(page >> 8 * i);
	w->sum = crc32c(crc32c(w->sum, number, sizeof(number)), p, len);
}

/*
 * Adds the blocks of the buffer that are not zeros to the sum, and copies them in as few calls as
 * possible.
 */
static int serve(struct file_walk *w, size_t len, struct err *e)
{
	size_t run = 0, n;
	int ret = 0;

	for (size_t at = 0; at < len && ret == 0; at += n) {
		n = min_u64(PAGE, len - at);
		bool zero = is_zero(w->buffer + at, n);

		if (!zero)
			add(w, (w->at + at) / PAGE, w->buffer + at, n);
		run += zero ? 0 : n;
		if (w->out < 0 || !run || (!zero && at + n < len))
			continue;
		size_t end = zero ? at : at + n;
		ret = file_write(w->out, w->at + end - run, w->buffer + end - run, run, e);
		run = 0;
	}
	return ret;
}

static int step(struct file_walk *w, uint64_t end, uint64_t *done, struct err *e)
{
	size_t len = min_u64(BUFFER_BYTES, end - w->at);
	int ret = file_read(w->in, w->at, w->buffer, len, e);

	if (ret == 0)
		ret = serve(w, len, e);
	w->at += len;
	*done += len;
	return ret;
}

int file_walk_step(struct file_walk *w, uint64_t budget, uint64_t *done, struct err *e)
{
	uint64_t before = *done, end;
	int ret = 0;

	while (ret == 0 && *done - before < budget) {
		file_next_data(w->in, w->at, w->bytes, &w->at, &end);
		if (w->at == w->bytes)
			return 1;
		while (ret == 0 && w->at < end && *done - before < budget)
			ret = step(w, end, done, e);
	}
	return ret;
}

/* --- known sums ----------------------------------------------------------------------------- */

static struct known {
	struct file_id file;
	uint32_t sum;
	bool set;
} known[KNOWN];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct known *place_of(const struct stat *st)
{
	uint64_t hash = ((uint64_t)st->st_ino * 0x9e3779b97f4a7c15u) ^ st->st_dev;

	return &known[(hash >> 40) % KNOWN];
}

bool file_sum_known(const struct stat *st, uint32_t *sum)
{
	const struct file_id file = file_id_of(st);

	pthread_mutex_lock(&lock);
	const struct known *k = place_of(st);
	bool found = k->set && file_id_equal(&k->file, &file);

	if (found)
		*sum = k->sum;
	pthread_mutex_unlock(&lock);
	return found;
}

void file_sum_learn(const struct stat *st, uint32_t sum)
{
	pthread_mutex_lock(&lock);
	*place_of(st) = (struct known){.file = file_id_of(st), .sum = sum, .set = true};
	pthread_mutex_unlock(&lock);
}
