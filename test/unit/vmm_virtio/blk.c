// SPDX-License-Identifier: Apache-2.0
/* Compares the disk as a guest sees it with an array of the expected bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "driver.h"
#include "vmm/backend/layer.h"

#define DISK	   (64u * 4096)
#define BASE_BYTES (20u * 4096 + 1000) /* ends within a cluster */
#define SECTORS	   (DISK / 512)

enum { IN = 0, OUT = 1, FLUSH = 4, GET_ID = 8, DISCARD = 11, ZEROES = 13 };
#define F_FLUSH (1ull << 9)

/* Set to stop the clock. */
static uint64_t frozen_ns;
int __real_clock_gettime(clockid_t id, struct timespec *t);
int __wrap_clock_gettime(clockid_t id, struct timespec *t);

int __wrap_clock_gettime(clockid_t id, struct timespec *t)
{
	if (!frozen_ns)
		return __real_clock_gettime(id, t);
	*t = (struct timespec){.tv_sec = (time_t)(frozen_ns / 1000000000),
			       .tv_nsec = (long)(frozen_ns % 1000000000)};
	return 0;
}

/* A request that was offered and not answered yet. */
struct pending {
	bool used;
	uint32_t type;
	uint64_t sector, sectors;
	uint64_t data; /* guest address */
	uint64_t status;
	uint8_t *expect; /* what a read must return: the model when the read was offered */
};

struct world {
	struct drv v;
	int base;
	int layer[LAYER_SEALED_MAX +
		  2]; /* own duplicates of all layer files, the last one is writable */
	unsigned nlayers;
	uint8_t model[DISK];
	uint64_t headers, data; /* guest memory: one header and one status per descriptor slot */
	struct pending by_head[128];
	unsigned npending;
};

/* Folder for the files; NULL: in memory. On a real file system, operations overlap in time. */
static const char *files_in;

static int new_file(void)
{
	int fd = -1;

	if (files_in)
		fd = open(files_in, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (fd < 0)
		fd = memfd_create("layer", MFD_CLOEXEC);

	assert_true(fd >= 0);
	return fd;
}

static void open_disk(struct world *w, struct layer_stack **out)
{
	int sealed[LAYER_SEALED_MAX + 2];
	struct err e = {0};

	for (unsigned i = 0; i < w->nlayers; i++)
		sealed[i] = dup(w->layer[i]);
	w->layer[w->nlayers] = new_file();
	if (layer_stack_open(out, dup(w->base), sealed, w->nlayers, dup(w->layer[w->nlayers]), DISK,
			     &e) < 0)
		fail_msg("%s", e.text);
	w->nlayers++;
}

static void start_device(struct world *w, uint64_t features)
{
	struct layer_stack *disk;
	struct vio_dev *dev;

	drv_init(&w->v, 4 << 20);
	open_disk(w, &disk);
	assert_int_equal(vio_blk_new(&dev, &w->v.mem, w->v.loop, disk, NULL), 0);
	drv_attach(&w->v, dev);
	drv_start(&w->v, features, 128);
	assert_int_equal(drv_read(&w->v, DRV_STATUS), 15);
	w->headers = drv_alloc(&w->v, 128 * 64, 64);
	w->data = drv_alloc(&w->v, 128 * 16384, 4096);
}

static struct world *make_world(void)
{
	struct world *w = calloc(1, sizeof(*w));

	w->base = new_file();
	for (size_t i = 0; i < BASE_BYTES; i++)
		w->model[i] = (uint8_t)(i * 7 + i / 4096);
	assert_int_equal(pwrite(w->base, w->model, BASE_BYTES, 0), BASE_BYTES);
	return w;
}

static int setup(void **state)
{
	struct world *w = make_world();

	start_device(w, F_FLUSH | DRV_F_EVENT_IDX | DRV_F_INDIRECT);
	*state = w;
	return 0;
}

static int setup_on_disk(void **state)
{
	files_in = "/var/tmp";
	return setup(state);
}

/* Mounts a file system of a few pages that only this process sees. Returns -1 where that is not
 * permitted. */
static int mount_small(void)
{
	static bool mounted;

	if (mounted)
		return 0;
	if (unshare(CLONE_NEWNS | (geteuid() ? CLONE_NEWUSER : 0)) < 0 ||
	    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("small", "/mnt", "tmpfs", 0, "size=256k") < 0)
		return -1;
	mounted = true;
	return 0;
}

static int setup_on_small(void **state)
{
	if (mount_small() < 0)
		return setup(state); /* the test sees that and skips itself */
	files_in = "/mnt";
	return setup(state);
}

static int teardown(void **state)
{
	struct world *w = *state;

	files_in = NULL;
	frozen_ns = 0;
	drv_fini(&w->v);
	for (unsigned i = 0; i < w->nlayers; i++)
		close(w->layer[i]);
	for (unsigned i = 0; i < 128; i++)
		free(w->by_head[i].expect);
	close(w->base);
	free(w);
	return 0;
}

static void put_header(struct world *w, uint64_t at, uint32_t type, uint64_t sector)
{
	uint32_t words[2] = {type, 0};

	memcpy(drv_ptr(&w->v, at), words, 8);
	memcpy(drv_ptr(&w->v, at + 8), &sector, 8);
}

/* Offers a request whose data sits in `len` bytes at guest address `data`; returns its head. */
static uint16_t offer(struct world *w, uint32_t type, uint64_t sector, uint64_t data, uint32_t len)
{
	uint16_t slot = w->v.q[0].next_desc;
	uint64_t header = w->headers + 64ull * slot, status = header + 32;
	struct drv_buf bufs[4] = {{header, 16, false}};
	unsigned n = 1;

	put_header(w, header, type, sector);
	*(uint8_t *)drv_ptr(&w->v, status) = 0xee;
	if (len > 4096) /* in two buffers of odd lengths */
		bufs[n++] = (struct drv_buf){data, 1000, type == IN || type == GET_ID};
	if (len)
		bufs[n] = (struct drv_buf){data, len, type == IN || type == GET_ID};
	if (len > 4096) {
		bufs[n].addr += 1000;
		bufs[n].len -= 1000;
	}
	n += len != 0;
	bufs[n++] = (struct drv_buf){status, 1, true};
	return drv_add(&w->v, 0, bufs, n);
}

static uint8_t wait_status(struct world *w, uint16_t head, uint32_t *len)
{
	uint16_t got;

	while (!drv_used(&w->v, 0, &got, len))
		event_loop_turn(w->v.loop, 1000);
	assert_int_equal(got, head);
	return *(uint8_t *)drv_ptr(&w->v, w->headers + 64ull * head + 32);
}

static uint8_t request(struct world *w, uint32_t type, uint64_t sector, uint64_t data, uint32_t len)
{
	uint16_t head = offer(w, type, sector, data, len);
	uint32_t written;

	drv_kick(&w->v, 0);
	return wait_status(w, head, &written);
}

static uint8_t range_request(struct world *w, uint32_t type, uint64_t sector, uint32_t sectors,
			     uint32_t flags)
{
	uint8_t *p = drv_ptr(&w->v, w->data);

	memcpy(p, &sector, 8);
	memcpy(p + 8, &sectors, 4);
	memcpy(p + 12, &flags, 4);
	return request(w, type, 0, w->data, 16);
}

static void check_disk(struct world *w)
{
	for (uint64_t s = 0; s < SECTORS; s += 32) {
		assert_int_equal(request(w, IN, s, w->data, 32 * 512), 0);
		assert_memory_equal(drv_ptr(&w->v, w->data), w->model + s * 512, 32 * 512);
	}
}

static void write_some(struct world *w, uint64_t sector, uint32_t sectors, int seed)
{
	uint8_t *p = drv_ptr(&w->v, w->data);

	for (uint32_t i = 0; i < sectors * 512; i++)
		p[i] = (uint8_t)(seed + (int)i * 3);
	assert_int_equal(request(w, OUT, sector, w->data, sectors * 512), 0);
	memcpy(w->model + sector * 512, p, sectors * 512);
}

static void zero_model(struct world *w, uint64_t sector, uint64_t sectors)
{
	memset(w->model + sector * 512, 0, sectors * 512);
}

static void seal(struct world *w)
{
	struct layer_stack *disk = vio_blk_disk(w->v.dev);

	while (!vio_mmio_drain(w->v.mmio))
		event_loop_turn(w->v.loop, 1000);
	w->layer[w->nlayers] = new_file();
	assert_int_equal(layer_stack_prepare(disk, dup(w->layer[w->nlayers]), NULL), 0);
	layer_stack_commit(disk);
	w->nlayers++;
	vio_mmio_continue(w->v.mmio);
}

/* Opens the sealed layers in a new device, as another VM would; drops the unsealed top layer. */
static void reopen(struct world *w)
{
	seal(w);
	drv_fini(&w->v);
	close(w->layer[--w->nlayers]);
	start_device(w, F_FLUSH | DRV_F_EVENT_IDX);
}

static void test_config_space_has_size_and_limits(void **state)
{
	struct world *w = *state;
	uint8_t c[60];

	for (unsigned i = 0; i < sizeof(c); i++)
		bus_read(&w->v.bus, BUS_MMIO, DRV_ADDR + DRV_CONFIG + i, &c[i], 1);
	assert_int_equal(*(uint64_t *)(void *)c, SECTORS);
	assert_int_equal(*(uint32_t *)(void *)(c + 12), 126);
	assert_int_equal(*(uint32_t *)(void *)(c + 20), 4096);
	uint64_t wide;
	bus_read(&w->v.bus, BUS_MMIO, DRV_ADDR + DRV_CONFIG, (uint8_t *)&wide, 8);
	assert_int_equal(wide, SECTORS);
	bus_read(&w->v.bus, BUS_MMIO, DRV_ADDR + DRV_CONFIG + 56, (uint8_t *)&wide, 8);
	assert_int_equal(wide, 1); /* write_zeroes_may_unmap, followed by zeros */
}

static void test_new_disk_reads_as_its_base_and_zeros(void **state)
{
	check_disk(*state);
}

static void test_writes_of_all_alignments_are_read_back(void **state)
{
	struct world *w = *state;

	write_some(w, 8, 8, 1);	  /* a whole cluster */
	write_some(w, 17, 3, 2);  /* within one cluster */
	write_some(w, 30, 20, 3); /* end of a cluster, whole ones, start of one */
	write_some(w, 162, 8, 4); /* right behind the end of the base */
	write_some(w, 31, 1, 5);  /* again, in a cluster that the layer already has */
	write_some(w, SECTORS - 1, 1, 6);
	check_disk(w);
	reopen(w);
	check_disk(w);
}

static void test_discarded_and_zeroed_ranges_read_as_zeros(void **state)
{
	struct world *w = *state;

	write_some(w, 0, 64, 9);
	assert_int_equal(range_request(w, DISCARD, 8, 16, 0), 0);
	zero_model(w, 8, 16);
	assert_int_equal(range_request(w, DISCARD, 33, 6, 0), 0); /* within a cluster: a hint */
	assert_int_equal(range_request(w, ZEROES, 41, 30, 1), 0);
	zero_model(w, 41, 30);
	assert_int_equal(range_request(w, ZEROES, 158, 8, 0), 0); /* across the end of the base */
	zero_model(w, 158, 8);
	assert_int_equal(range_request(w, DISCARD, 96, 400, 0), 0); /* in the base and behind it */
	zero_model(w, 96, 400);
	check_disk(w);
	reopen(w);
	check_disk(w);
}

static void test_invalid_requests_are_refused(void **state)
{
	struct world *w = *state;

	assert_int_equal(request(w, IN, SECTORS, w->data, 512), 1);
	assert_int_equal(request(w, IN, SECTORS - 1, w->data, 1024), 1);
	assert_int_equal(request(w, OUT, UINT64_MAX, w->data, 512), 1);
	assert_int_equal(request(w, OUT, UINT64_MAX / 512, w->data, 512), 1);
	assert_int_equal(request(w, IN, 0, w->data, 100), 1);
	assert_int_equal(request(w, 2, 0, w->data, 512), 2);
	assert_int_equal(request(w, UINT32_MAX, 0, w->data, 512), 2);
	assert_int_equal(range_request(w, DISCARD, 0, 8, 1), 2); /* flags that are not defined */
	assert_int_equal(range_request(w, DISCARD, UINT64_MAX, 8, 0), 1);
	assert_int_equal(range_request(w, ZEROES, 0, UINT32_MAX, 0), 1);
	assert_int_equal(request(w, DISCARD, 0, w->data, 32), 1); /* two ranges */
	assert_int_equal(request(w, IN, 0, w->data, 0), 0);
	check_disk(w);
	assert_int_equal(drv_read(&w->v, DRV_STATUS), 15);
}

static void test_request_without_room_for_a_status_is_a_fault(void **state)
{
	struct world *w = *state;

	put_header(w, w->headers, IN, 0);
	drv_add(&w->v, 0, &(struct drv_buf){w->headers, 16, false}, 1);
	drv_kick(&w->v, 0);
	drv_run(&w->v);
	assert_int_equal(drv_read(&w->v, DRV_STATUS), 15 | DRV_NEEDS_RESET);
	drv_start(&w->v, 0, 128);
	check_disk(w);
}

static void test_id_and_flush_requests_are_answered(void **state)
{
	struct world *w = *state;

	assert_int_equal(request(w, GET_ID, 0, w->data, 20), 0);
	assert_string_equal(drv_ptr(&w->v, w->data), "ramet-disk");
	assert_int_equal(request(w, FLUSH, 0, 0, 0), 0);
	write_some(w, 0, 8, 1);
	assert_int_equal(request(w, FLUSH, 0, 0, 0), 0);
}

static void test_driver_without_flush_writes_through(void **state)
{
	struct world *w = *state;

	drv_start(&w->v, 0, 128);
	write_some(w, 3, 40, 1);
	assert_int_equal(range_request(w, ZEROES, 5, 9, 0), 0);
	zero_model(w, 5, 9);
	check_disk(w);
}

static void test_write_over_the_file_size_limit_is_an_io_error(void **state)
{
	struct world *w = *state;
	struct rlimit was, none;

	assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
	none = was;
	none.rlim_cur = 4096;
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
	assert_int_equal(request(w, OUT, 8, w->data, 4096), 1);
	assert_int_equal(request(w, OUT, 1, w->data, 512), 1);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
	check_disk(w); /* nothing of the failed writes is visible */
	write_some(w, 8, 8, 1);
	check_disk(w);
}

/* Fills the small file system, or skips the test. Truncating the returned file frees the space. */
static int fill_small(void)
{
	static const uint8_t page[4096];

	if (!files_in) {
		print_message("no private file system can be mounted here\n");
		skip();
	}
	int fd = new_file();
	while (write(fd, page, sizeof(page)) > 0)
		;
	return fd;
}

static uint16_t offer_write(struct world *w, uint64_t sector, uint8_t fill)
{
	memset(drv_ptr(&w->v, w->data), fill, 4096);
	uint16_t head = offer(w, OUT, sector, w->data, 4096);

	drv_kick(&w->v, 0);
	for (int i = 0; i < 5; i++)
		event_loop_turn(w->v.loop, 50);
	return head;
}

static void test_writes_wait_while_the_host_disk_is_full(void **state)
{
	struct world *w = *state;
	scoped_fd int filler = fill_small();
	uint16_t head = offer_write(w, 8, 0x5a), got;
	uint32_t len;

	assert_false(drv_used(&w->v, 0, &got, &len)); /* neither an error nor an answer yet */
	assert_int_equal(ftruncate(filler, 0), 0);
	assert_int_equal(wait_status(w, head, &len), 0);
	memset(w->model + 4096, 0x5a, 4096);
	check_disk(w);
}

/*
 * A write that waits for disk space does not delay a drain, is not attempted while the device is
 * quiesced, and is done afterwards.
 */
static void test_drain_does_not_wait_for_disk_space(void **state)
{
	struct world *w = *state;
	scoped_fd int filler = fill_small();
	uint16_t head = offer_write(w, 8, 0x5a), got;
	uint32_t len;

	while (!vio_blk_enospc(w->v.dev)) /* it may be in a retry right now */
		event_loop_turn(w->v.loop, 1000);
	while (!vio_mmio_drain(w->v.mmio))
		event_loop_turn(w->v.loop, 1000);
	assert_true(vio_blk_enospc(w->v.dev));
	assert_int_equal(ftruncate(filler, 0), 0);
	for (int i = 0; i < 5; i++)
		event_loop_turn(w->v.loop, 50);
	assert_true(vio_blk_enospc(w->v.dev));
	assert_false(drv_used(&w->v, 0, &got, &len));
	vio_mmio_continue(w->v.mmio);
	assert_int_equal(wait_status(w, head, &len), 0);
	assert_false(vio_blk_enospc(w->v.dev));
	memset(w->model + 4096, 0x5a, 4096);
	check_disk(w);
}

static void test_reset_cancels_writes_that_wait_for_disk_space(void **state)
{
	struct world *w = *state;
	scoped_fd int filler = fill_small();

	offer_write(w, 8, 0x5a);
	/* Waits for one more attempt of the write, since one that the kernel had at the reset may
	 * still be done. */
	while (vio_blk_enospc(w->v.dev))
		event_loop_turn(w->v.loop, 1000);
	while (!vio_blk_enospc(w->v.dev))
		event_loop_turn(w->v.loop, 1000);
	drv_start(&w->v, 0, 128);
	assert_int_equal(ftruncate(filler, 0), 0);
	check_disk(w);
}

/* --- limits --- */

/* Sets rate limits and stops the clock, which only the test advances from then on. */
static void limit(struct world *w, uint32_t bytes_s, uint32_t ops_s)
{
	const struct vio_blk_limits limits = {.bytes_s = bytes_s, .ops_s = ops_s};

	frozen_ns = 1000ull * 1000000000;
	vio_blk_limit(w->v.dev, &limits);
}

static void turn(struct world *w)
{
	for (int i = 0; i < 20; i++)
		event_loop_turn(w->v.loop, 1);
}

static void wait_ms(struct world *w, uint64_t ms)
{
	frozen_ns += ms * 1000000;
	turn(w);
}

static unsigned answered(struct world *w)
{
	uint16_t head;
	uint32_t len;
	unsigned n = 0;

	while (drv_used(&w->v, 0, &head, &len)) {
		assert_int_equal(*(uint8_t *)drv_ptr(&w->v, w->headers + 64ull * head + 32), 0);
		n++;
	}
	return n;
}

static void offer_many(struct world *w, unsigned n, uint32_t type, uint32_t bytes)
{
	for (unsigned i = 0; i < n; i++)
		offer(w, type, 0, w->data, bytes);
	drv_kick(&w->v, 0);
	turn(w);
}

/* A second's worth of operations and one more are served at once, the rest at the rate. */
static void test_operations_over_the_rate_wait(void **state)
{
	struct world *w = *state;

	limit(w, 0, 10);
	offer_many(w, 30, IN, 4096);
	assert_int_equal(answered(w), 11);
	wait_ms(w, 150);
	assert_int_equal(answered(w), 1);
	wait_ms(w, 1000);
	assert_int_equal(answered(w), 10);
	wait_ms(w, 10000);
	assert_int_equal(answered(w), 8);
}

static void test_bytes_over_the_rate_wait(void **state)
{
	struct world *w = *state;

	limit(w, 16 * 4096, 0);
	offer_many(w, 20, IN, 4 * 4096);
	assert_int_equal(answered(w), 5);
	wait_ms(w, 500);
	assert_int_equal(answered(w), 2);
	wait_ms(w, 60000);
	assert_int_equal(answered(w), 5);
	wait_ms(w, 60000);
	assert_int_equal(answered(w), 5);
}

static void test_flush_counts_as_several_operations(void **state)
{
	struct world *w = *state;

	limit(w, 0, 40);
	offer_many(w, 10, FLUSH, 0);
	assert_int_equal(answered(w), 3);
	wait_ms(w, 500);
	assert_int_equal(answered(w), 1);
}

/*
 * One request may need many operations, all of which count toward the limit. Clusters alternate
 * between zeros and data, so the request becomes one operation for each data cluster.
 */
static void test_rate_limit_applies_within_a_large_request(void **state)
{
	struct world *w = *state;
	uint8_t *p = drv_ptr(&w->v, w->data);
	const uint64_t sector = 0;
	const uint32_t sectors = SECTORS, none = 0;

	for (uint64_t s = 0; s < SECTORS; s += 16)
		write_some(w, s, 8, 1);
	for (uint64_t s = 8; s < SECTORS; s += 16)
		assert_int_equal(range_request(w, ZEROES, s, 8, 0), 0);
	limit(w, 0, 20);
	memcpy(p, &sector, 8);
	memcpy(p + 8, &sectors, 4);
	memcpy(p + 12, &none, 4);
	offer_many(w, 1, ZEROES, 16);
	assert_int_equal(answered(w), 0);
	for (int s = 0; s < 10; s++)
		wait_ms(w, 1000);
	assert_int_equal(answered(w), 0);
	for (int s = 0; s < 30; s++)
		wait_ms(w, 1000);
	assert_int_equal(answered(w), 1);
	frozen_ns = 0;
	zero_model(w, 0, SECTORS);
	limit(w, 0, 0);
	check_disk(w);
}

/* A drain for a fork or freeze completes at once, however much the guest has exceeded its limit. */
static void test_drain_does_not_wait_for_the_rate_limit(void **state)
{
	struct world *w = *state;

	limit(w, 0, 1);
	offer_many(w, 8, FLUSH, 0);
	assert_int_equal(answered(w), 1);
	while (!vio_mmio_drain(w->v.mmio))
		event_loop_turn(w->v.loop, 1000);
	turn(w);
	unsigned done = answered(w);
	wait_ms(w, 600000);
	assert_int_equal(answered(w), 0); /* queued requests stay in the queue */
	vio_mmio_continue(w->v.mmio);
	turn(w);
	for (int i = 0; i < 10; i++) {
		wait_ms(w, 60000);
		done += answered(w);
	}
	assert_int_equal(done, 7);
}

static void test_reset_cancels_requests_over_the_rate(void **state)
{
	struct world *w = *state;

	limit(w, 0, 1);
	write_some(w, 0, 3, 1); /* copies up a cluster, which takes two operations in sequence */
	offer_many(w, 8, OUT, 1024);
	drv_start(&w->v, F_FLUSH, 128);
	limit(w, 0, 0);
	wait_ms(w, 600000);
	assert_int_equal(answered(w), 0);
	frozen_ns = 0;
	check_disk(w);
}

static void test_short_write_continues_when_there_is_space(void **state)
{
	struct world *w = *state;
	struct rlimit was, some;
	uint8_t fresh[8192];

	/* Writes two clusters at 4096 of the disk, which is 12288 of the file. 5096 bytes of them
	 * fit. */
	memset(fresh, 0x77, sizeof(fresh));
	memcpy(drv_ptr(&w->v, w->data), fresh, sizeof(fresh));
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
	some = was;
	some.rlim_cur = 12288 + 5096;
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &some), 0);
	uint16_t head = offer(w, OUT, 8, w->data, 8192), got;
	uint32_t len;
	drv_kick(&w->v, 0);
	for (int i = 0; i < 5; i++)
		event_loop_turn(w->v.loop, 50);
	assert_false(drv_used(&w->v, 0, &got, &len));
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
	assert_int_equal(wait_status(w, head, &len), 0);
	memcpy(w->model + 4096, fresh, sizeof(fresh));
	check_disk(w);
}

static uint32_t random_below(unsigned *seed, uint32_t n)
{
	return (uint32_t)rand_r(seed) % n;
}

/*
 * The model changes when a request is offered: the device must behave as if overlapping requests
 * were done in the order in which they were offered.
 */
static void offer_random(struct world *w, unsigned *seed)
{
	static const uint32_t types[] = {IN, IN, IN, OUT, OUT, OUT, ZEROES, DISCARD, FLUSH};
	uint32_t type = types[random_below(seed, 9)], sectors = 1 + random_below(seed, 24);
	uint64_t sector = random_below(seed, SECTORS - 24);
	uint16_t slot = w->v.q[0].next_desc;
	uint64_t data = w->data + 16384ull * slot;
	uint8_t *p = drv_ptr(&w->v, data);
	uint32_t len = sectors * 512;

	if (type == DISCARD || random_below(seed, 3) == 0) { /* often whole clusters */
		sector -= sector % 8;
		sectors = 8 + sectors / 8 * 8;
		len = sectors * 512;
	}
	struct pending x = {true, type, sector, sectors, data, 0, NULL};
	if (type == IN) {
		x.expect = malloc(len);
		memcpy(x.expect, w->model + sector * 512, len);
		memset(p, 0xaa, len);
	} else if (type == OUT) {
		for (uint32_t i = 0; i < len; i++)
			p[i] = (uint8_t)rand_r(seed);
		memcpy(w->model + sector * 512, p, len);
	} else if (type == FLUSH) {
		len = 0;
		sector = 0;
	} else {
		uint32_t n = sectors, none = 0;

		memcpy(p, &sector, 8);
		memcpy(p + 8, &n, 4);
		memcpy(p + 12, &none, 4);
		zero_model(w, sector, sectors);
		len = 16;
		sector = 0;
	}
	uint16_t head = offer(w, type, sector, data, len);
	assert_false(w->by_head[head].used);
	w->by_head[head] = x;
	w->npending++;
}

static void take_answers(struct world *w)
{
	uint16_t head;
	uint32_t len;

	while (drv_used(&w->v, 0, &head, &len)) {
		struct pending *x = &w->by_head[head];

		assert_true(x->used);
		assert_int_equal(*(uint8_t *)drv_ptr(&w->v, w->headers + 64ull * head + 32), 0);
		if (x->type == IN) {
			assert_int_equal(len, x->sectors * 512 + 1);
			assert_memory_equal(drv_ptr(&w->v, x->data), x->expect, x->sectors * 512);
		}
		free(x->expect);
		*x = (struct pending){0};
		w->npending--;
	}
}

static void wait_idle(struct world *w)
{
	drv_kick(&w->v, 0);
	take_answers(w);
	while (w->npending) {
		event_loop_turn(w->v.loop, 1000);
		take_answers(w);
	}
}

static void check_random(struct world *w, int rounds)
{
	unsigned seed = 20;

	for (int round = 0; round < rounds; round++) {
		unsigned batch = 1 + random_below(&seed, 20);

		for (unsigned i = 0; i < batch; i++)
			offer_random(w, &seed);
		wait_idle(w);
		if (round % 40 == 39)
			seal(w);
		if (round % 150 == 149)
			reopen(w);
	}
	check_disk(w);
}

static void test_random_requests_match_the_model(void **state)
{
	check_random(*state, 600);
}

/* The limits are so low that most requests are delayed at some step. */
static void test_random_requests_match_the_model_under_rate_limits(void **state)
{
	struct world *w = *state;
	const struct vio_blk_limits limits = {.bytes_s = 20 << 20, .ops_s = 5000};

	vio_blk_limit(w->v.dev, &limits);
	check_random(w, 100);
}

static void test_concurrent_writes_to_one_cluster_lose_nothing(void **state)
{
	struct world *w = *state;

	/* In each round, eight requests write one sector each of a cluster that only the base
	 * has. */
	for (int round = 0; round < 20; round++) {
		for (unsigned i = 0; i < 8; i++) {
			uint64_t data = w->data + 512 * i;
			uint8_t *p = drv_ptr(&w->v, data);

			memset(p, 0x40 + round + (int)i, 512);
			memcpy(w->model + (uint64_t)round * 4096 + 512 * i, p, 512);
			uint16_t head = offer(w, OUT, (uint64_t)round * 8 + i, data, 512);
			w->by_head[head] = (struct pending){.used = true, .type = OUT};
			w->npending++;
		}
		wait_idle(w);
	}
	check_disk(w);
}

static void test_drain_waits_for_requests_in_flight(void **state)
{
	struct world *w = *state;
	unsigned seed = 5;

	for (int i = 0; i < 30; i++)
		offer_random(w, &seed);
	drv_kick(&w->v, 0);
	event_loop_turn(w->v.loop, 0); /* the device begins to serve them */
	while (!vio_mmio_drain(w->v.mmio))
		event_loop_turn(w->v.loop, 1000);
	take_answers(w);
	unsigned left = w->npending;
	uint16_t before = *(uint16_t *)drv_ptr(&w->v, w->v.q[0].used + 2);
	offer_random(w, &seed);
	drv_kick(&w->v, 0);
	drv_run(&w->v);
	assert_int_equal(*(uint16_t *)drv_ptr(&w->v, w->v.q[0].used + 2), before);
	assert_int_equal(w->npending, left + 1);
	vio_mmio_continue(w->v.mmio);
	wait_idle(w);
	check_disk(w);
}

static void on_drained(void *arg)
{
	++*(int *)arg;
}

static void test_on_drained_is_called_once(void **state)
{
	struct world *w = *state;
	int notified = 0;
	unsigned seed = 6;

	w->v.dev->on_drained = on_drained;
	w->v.dev->on_drained_arg = &notified;
	for (int i = 0; i < 30; i++)
		offer_random(w, &seed);
	drv_kick(&w->v, 0);
	event_loop_turn(w->v.loop, 0);
	if (!vio_mmio_drain(w->v.mmio)) {
		while (!notified)
			event_loop_turn(w->v.loop, 1000);
		assert_int_equal(notified, 1);
	}
	assert_true(vio_mmio_drain(w->v.mmio));
	drv_run(&w->v);
	assert_true(notified <= 1);
	vio_mmio_continue(w->v.mmio);
	wait_idle(w);
}

static void test_reset_discards_requests_in_flight(void **state)
{
	struct world *w = *state;
	unsigned seed = 7;

	for (int round = 0; round < 30; round++) {
		for (int i = 0; i < 20; i++)
			offer_random(w, &seed);
		drv_kick(&w->v, 0);
		event_loop_turn(w->v.loop, 0);
		drv_start(&w->v, F_FLUSH, 128);
		for (unsigned i = 0; i < 128; i++) {
			free(w->by_head[i].expect);
			w->by_head[i] = (struct pending){0};
		}
		w->npending = 0;
		while (!vio_mmio_drain(w->v.mmio))
			event_loop_turn(w->v.loop, 1000);
		vio_mmio_continue(w->v.mmio);
		uint16_t head;
		uint32_t len;
		assert_false(
			drv_used(&w->v, 0, &head, &len)); /* no answer to the previous driver */
	}
	/* The results of the discarded requests are unknown, but the device still works. */
	for (uint64_t s = 0; s < SECTORS; s += 8)
		write_some(w, s, 8, (int)s);
	check_disk(w);
}

/* Closes the test's own descriptors of layers that left the chain. */
static void forget_layers(struct world *w)
{
	int fds[LAYER_SEALED_MAX];
	unsigned n = layer_sealed_fds(vio_blk_disk(w->v.dev), fds);

	for (unsigned i = 0; i < w->nlayers; i++)
		close(w->layer[i]);
	w->nlayers = 0;
	for (unsigned i = 0; i < n; i++)
		w->layer[w->nlayers++] = dup(fds[i]);
	w->layer[w->nlayers++] = dup(layer_writable_fd(vio_blk_disk(w->v.dev)));
}

static void seal_and_shorten(struct world *w)
{
	seal(w);
	vio_blk_sealed(w->v.dev);
}

/* Meanwhile the guest reads and writes, and always reads what it has written. */
static void test_long_chain_is_shortened_in_the_background(void **state)
{
	struct world *w = *state;
	struct layer_stack *disk = vio_blk_disk(w->v.dev);
	int fds[LAYER_SEALED_MAX];
	unsigned seed = 9, most = 0;

	for (unsigned i = 0; i < 300; i++) {
		for (int j = 0; j < 3; j++)
			offer_random(w, &seed);
		drv_kick(&w->v, 0);
		wait_idle(w);
		seal_and_shorten(w);
		forget_layers(w);
		while (layer_copying_up(disk) && i % 7)
			event_loop_turn(w->v.loop, 1000);
		most = layer_sealed_fds(disk, fds) > most ? layer_sealed_fds(disk, fds) : most;
	}
	assert_true(most > 20 && most < LAYER_SEALED_MAX - 5);
	check_disk(w);
	forget_layers(w);
	reopen(w);
	check_disk(w);
}

/* Seals layers faster than the background shortens the chain: the drain before a seal waits until
 * there is room. */
static void test_drain_waits_for_room_in_a_full_chain(void **state)
{
	struct world *w = *state;

	for (unsigned i = 0; i < 3 * LAYER_SEALED_MAX; i++) {
		write_some(w, 8 * (i % 40), 8, (int)i);
		if (i % 3 == 0) {
			assert_int_equal(range_request(w, DISCARD, 8 * ((i + 7) % 40), 8, 0), 0);
			zero_model(w, 8 * ((i + 7) % 40), 8);
		}
		seal(w);
		forget_layers(w);
	}
	check_disk(w);
	reopen(w);
	check_disk(w);
}

static void test_stats_count_bytes(void **state)
{
	struct world *w = *state;
	struct vio_blk_stats before = vio_blk_stats(w->v.dev);

	write_some(w, 0, 9, 1);
	assert_int_equal(request(w, IN, 0, w->data, 1024), 0);
	assert_int_equal(vio_blk_stats(w->v.dev).write_bytes - before.write_bytes, 9 * 512);
	assert_int_equal(vio_blk_stats(w->v.dev).read_bytes - before.read_bytes, 1024);
}

static void test_blank_vm_has_no_disk_until_it_is_set(void **state)
{
	struct world *w = make_world();
	struct layer_stack *disk;
	struct vio_dev *dev;

	drv_init(&w->v, 4 << 20);
	assert_int_equal(vio_blk_new(&dev, &w->v.mem, w->v.loop, NULL, NULL), 0);
	drv_attach(&w->v, dev);
	assert_int_equal(drv_read(&w->v, DRV_CONFIG), 0);
	drv_start(&w->v, F_FLUSH, 128);
	w->headers = drv_alloc(&w->v, 128 * 64, 64);
	w->data = drv_alloc(&w->v, 65536, 4096);
	assert_int_equal(request(w, IN, 0, w->data, 512), 1);
	assert_int_equal(request(w, FLUSH, 0, 0, 0), 1);
	open_disk(w, &disk);
	vio_blk_set_disk(dev, disk);
	check_disk(w);
	*state = w;
	teardown(state);
}

static void test_restore_with_another_disk_size_is_refused(void **state)
{
	struct world *w = *state;
	struct drv other;
	struct vio_dev *dev;
	uint8_t buf[512];
	struct wire out = wire_on(buf, sizeof(buf));
	struct err e = {0};

	assert_true(vio_mmio_drain(w->v.mmio));
	vio_mmio_save(w->v.mmio, &out);
	drv_init(&other, 4 << 20);
	assert_int_equal(vio_blk_new(&dev, &other.mem, other.loop, NULL, NULL), 0);
	drv_attach(&other, dev);
	struct wire in = wire_from(buf, out.pos);
	assert_true(vio_mmio_restore(other.mmio, &in, &e) < 0);
	assert_non_null(strstr(e.text, "262144 bytes"));
	drv_fini(&other);
}

#define T(f)	    cmocka_unit_test_setup_teardown(f, setup, teardown)
#define ON_DISK(f)  cmocka_unit_test_setup_teardown(f, setup_on_disk, teardown)
#define ON_SMALL(f) cmocka_unit_test_setup_teardown(f, setup_on_small, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_config_space_has_size_and_limits),
		T(test_new_disk_reads_as_its_base_and_zeros),
		T(test_writes_of_all_alignments_are_read_back),
		T(test_discarded_and_zeroed_ranges_read_as_zeros),
		T(test_invalid_requests_are_refused),
		T(test_request_without_room_for_a_status_is_a_fault),
		T(test_id_and_flush_requests_are_answered),
		T(test_driver_without_flush_writes_through),
		T(test_write_over_the_file_size_limit_is_an_io_error),
		T(test_short_write_continues_when_there_is_space),
		T(test_random_requests_match_the_model),
		ON_DISK(test_random_requests_match_the_model),
		T(test_random_requests_match_the_model_under_rate_limits),
		T(test_concurrent_writes_to_one_cluster_lose_nothing),
		ON_DISK(test_concurrent_writes_to_one_cluster_lose_nothing),
		T(test_drain_waits_for_requests_in_flight),
		ON_DISK(test_drain_waits_for_requests_in_flight),
		T(test_on_drained_is_called_once),
		ON_DISK(test_on_drained_is_called_once),
		T(test_reset_discards_requests_in_flight),
		ON_DISK(test_reset_discards_requests_in_flight),
		T(test_long_chain_is_shortened_in_the_background),
		ON_DISK(test_long_chain_is_shortened_in_the_background),
		T(test_drain_waits_for_room_in_a_full_chain),
		ON_DISK(test_drain_waits_for_room_in_a_full_chain),
		T(test_stats_count_bytes),
		T(test_operations_over_the_rate_wait),
		T(test_bytes_over_the_rate_wait),
		T(test_flush_counts_as_several_operations),
		T(test_rate_limit_applies_within_a_large_request),
		T(test_drain_does_not_wait_for_the_rate_limit),
		T(test_reset_cancels_requests_over_the_rate),
		ON_SMALL(test_writes_wait_while_the_host_disk_is_full),
		ON_SMALL(test_drain_does_not_wait_for_disk_space),
		ON_SMALL(test_reset_cancels_writes_that_wait_for_disk_space),
		cmocka_unit_test(test_blank_vm_has_no_disk_until_it_is_set),
		T(test_restore_with_another_disk_size_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
