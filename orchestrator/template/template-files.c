// SPDX-License-Identifier: Apache-2.0
/*
 * Template images on disk: STATE_DIR/templates/IMAGE/{state,memory,layer-0,manifest}. IMAGE is
 * NAME-KEY-SIZE. KEY is a hash of all inputs, so an image whose inputs changed is never found. A
 * directory is made as IMAGE.tmp and renamed once all of it is on disk.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/file-sum.h"
#include "base/file.h"
#include "base/log.h"
#include "orchestrator/io/disk-job.h"
#include "orchestrator/template/disk-layer.h"
#include "orchestrator/template/template-internal.h"
#include "proto/agent.h"
#include "proto/ctl.h"
#include "proto/image.h"

#define WHOLE_MAX   (8u << 20)	 /* bytes; files up to this size are hashed whole */
#define PART	    (1u << 20)	 /* bytes hashed at each end of a larger file */
#define ASKED_MAX   16		 /* most images of all templates, besides those prepared ahead */
#define ASKED_BYTES (4ull << 30) /* most bytes of these images on disk */

static const char *const files[] = {"state", "memory", "layer-0", "manifest"};

/* --- key ------------------------------------------------------------------------------------ */

static int hash_part(EVP_MD_CTX *md, int fd, off_t from, size_t len)
{
	uint8_t *buf = must_alloc(PART);
	int ret = 0;

	while (len && ret == 0) {
		ssize_t got = pread(fd, buf, len < PART ? len : PART, from);

		if (got <= 0) {
			ret = got ? -errno : -EIO;
			break;
		}
		EVP_DigestUpdate(md, buf, (size_t)got);
		from += got;
		len -= (size_t)got;
	}
	free(buf);
	return ret;
}

/* Hashes a file. A large one is identified by its size, its mtime and its ends: reading it all
 * would take seconds. */
static int hash_file(EVP_MD_CTX *md, const char *what, const char *path, struct err *e)
{
	scoped_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_set(e, errno, "%s %s", what, path);
	if (!S_ISREG(st.st_mode) || !st.st_size)
		return err_say(e, EINVAL, "%s %s is empty or not a regular file", what, path);
	uint64_t about[2] = {(uint64_t)st.st_size, 0};
	int ret;
	if (st.st_size <= (off_t)WHOLE_MAX) {
		ret = hash_part(md, fd, 0, (size_t)st.st_size);
	} else {
		about[1] = (uint64_t)st.st_mtim.tv_sec * 1000000000u + (uint64_t)st.st_mtim.tv_nsec;
		ret = hash_part(md, fd, 0, PART);
		if (ret == 0)
			ret = hash_part(md, fd, st.st_size - (off_t)PART, PART);
	}
	EVP_DigestUpdate(md, about, sizeof(about));
	return ret < 0 ? err_set(e, -ret, "read %s %s", what, path) : 0;
}

static int hash_inputs(EVP_MD_CTX *md, const struct config *c, const struct source *s,
		       struct err *e)
{
	const uint32_t versions[] = {IMAGE_STATE_VERSION, IMAGE_LAYER_VERSION, CTL_VERSION,
				     AGENT_VERSION, MANIFEST_VERSION};
	char cmdline[CTL_CMDLINE_MAX];
	int ret = hash_file(md, "kernel", c->kernel, e);

	template_cmdline(c, cmdline, sizeof(cmdline));
	EVP_DigestUpdate(md, cmdline, strlen(cmdline));
	EVP_DigestUpdate(md, versions, sizeof(versions));
	if (ret == 0 && c->initramfs[0])
		ret = hash_file(md, "initramfs", c->initramfs, e);
	if (ret == 0)
		ret = hash_file(md, "rootfs", s->rootfs, e);
	if (ret == 0 && s->warmup[0])
		ret = hash_file(md, "warmup", s->warmup, e);
	if (ret == 0)
		ret = hash_file(md, "vmm", c->vmm, e);
	return ret;
}

static int key_of(const struct template_job *job, char key[MANIFEST_KEY_LEN + 1], struct err *e)
{
	EVP_MD_CTX *md = EVP_MD_CTX_new();
	uint8_t digest[EVP_MAX_MD_SIZE];
	int ret = md && EVP_DigestInit_ex(md, EVP_sha256(), NULL)
			  ? hash_inputs(md, &job->config, &job->source, e)
			  : err_say(e, ENOMEM, "no memory for a hash context");

	if (ret == 0)
		EVP_DigestFinal_ex(md, digest, NULL);
	EVP_MD_CTX_free(md);
	for (int i = 0; ret == 0 && i < MANIFEST_KEY_LEN / 2; i++)
		snprintf(key + 2 * i, 3, "%02x", digest[i]);
	return ret;
}

#define SIZE_NAME_LEN 48

static size_t size_name(char out[SIZE_NAME_LEN], const struct size *size)
{
	return (size_t)snprintf(out, SIZE_NAME_LEN, "-%uc-%um-%ug", size->vcpus, size->ram_mib,
				size->rootfs_gb);
}

static int name_of(struct template_job *job)
{
	char size[SIZE_NAME_LEN];
	int ret = key_of(job, job->key, &job->job.err);

	size_name(size, &job->size);
	if (ret == 0)
		snprintf(job->name, sizeof(job->name), "%s-%s%s", job->source.name, job->key, size);
	return ret;
}

/* Parses the name of an image directory into its template's name and key. Returns false for any
 * other name. */
static bool owner_of(const char *entry, char name[SOURCE_NAME_MAX + 1],
		     char key[MANIFEST_KEY_LEN + 1])
{
	size_t len = strlen(entry);

	/* Search from the end: three parts of the size, then the key. */
	for (int dashes = 0; len && dashes < 3;)
		dashes += entry[--len] == '-';
	if (len < MANIFEST_KEY_LEN + 2 || entry[len - MANIFEST_KEY_LEN - 1] != '-')
		return false;
	size_t name_len = len - MANIFEST_KEY_LEN - 1;
	if (name_len > SOURCE_NAME_MAX)
		return false;
	snprintf(name, SOURCE_NAME_MAX + 1, "%.*s", (int)name_len, entry);
	snprintf(key, MANIFEST_KEY_LEN + 1, "%s", entry + name_len + 1);
	return true;
}

/* --- check ---------------------------------------------------------------------------------- */

static int size_is(int dir, const char *name, uint64_t size, struct err *e)
{
	struct stat st;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return err_set(e, errno, "%s", name);
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != size)
		return err_say(e, EINVAL, "%s has %lld bytes, not %llu", name,
			       (long long)st.st_size, (unsigned long long)size);
	return 0;
}

static int check_image(int dir, const struct template_job *job, struct err *e)
{
	const struct size *size = &job->size;
	char text[MANIFEST_MAX];
	struct manifest m;
	scoped_fd int fd = openat(dir, "manifest", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

	if (fd < 0)
		return err_set(e, errno, "manifest");
	ssize_t len = pread(fd, text, sizeof(text), 0);
	if (len < 0)
		return err_set(e, errno, "read its manifest");
	int ret = manifest_parse(text, (size_t)len, &m, e);
	if (ret < 0)
		return ret;
	if (strcmp(m.template, job->source.name) != 0 || strcmp(m.key, job->key) != 0)
		return err_say(e, EINVAL, "its manifest belongs to another template");
	if (m.vcpus != size->vcpus || m.ram_mib != size->ram_mib ||
	    m.rootfs_gb != size->rootfs_gb || m.memory_bytes != (uint64_t)size->ram_mib << 20)
		return err_say(e, EINVAL, "its manifest has another size");
	ret = size_is(dir, "state", m.state_bytes, e);
	if (ret == 0)
		ret = size_is(dir, "memory", m.memory_bytes, e);
	if (ret == 0)
		ret = size_is(dir, "layer-0", m.layer_bytes, e);
	return ret;
}

static void remove_image(int parent, const char *name)
{
	scoped_fd int dir = openat(parent, name, O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

	for (size_t i = 0; dir >= 0 && i < ARRAY_LEN(files); i++)
		unlinkat(dir, files[i], 0);
	unlinkat(parent, name, AT_REMOVEDIR);
}

/* Returns true for an incomplete image, and for one whose template is gone. */
static bool is_litter(const struct config *config, const char *entry)
{
	char name[SOURCE_NAME_MAX + 1], key[MANIFEST_KEY_LEN + 1];
	struct source source;
	struct err e;

	if (entry[0] == '.')
		return false;
	return strstr(entry, ".tmp") || !owner_of(entry, name, key) ||
	       source_find(config, name, &source, &e) == -ENOENT;
}

void templates_sweep(const struct config *config)
{
	char path[CONFIG_PATH_MAX + 16];
	struct dirent *entry;

	snprintf(path, sizeof(path), "%s/templates", config->state_dir);
	DIR *d = opendir(path);
	while (d && (entry = readdir(d)))
		if (is_litter(config, entry->d_name))
			remove_image(dirfd(d), entry->d_name);
	if (d)
		closedir(d);
}

/* Returns the size of an image on disk, in bytes. */
static uint64_t image_bytes(int parent, const char *name)
{
	scoped_fd int dir = openat(parent, name, O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	uint64_t bytes = 0;
	struct stat st;

	for (size_t i = 0; dir >= 0 && i < ARRAY_LEN(files); i++)
		if (fstatat(dir, files[i], &st, AT_SYMLINK_NOFOLLOW) == 0)
			bytes += (uint64_t)st.st_blocks * 512;
	return bytes;
}

/* Removes the images of the template that were made from other inputs, such as an older rootfs. */
static void sweep_others(int parent, const struct template_job *job)
{
	char name[SOURCE_NAME_MAX + 1], key[MANIFEST_KEY_LEN + 1];
	DIR *d = fdopendir(dup(parent));
	struct dirent *entry;

	if (!d)
		return;
	rewinddir(d);
	while ((entry = readdir(d)))
		if (entry->d_name[0] != '.' && owner_of(entry->d_name, name, key) &&
		    strcmp(name, job->source.name) == 0 && strcmp(key, job->key) != 0)
			remove_image(parent, entry->d_name);
	closedir(d);
}

/* The evictable images: their number and size, and the least recently used one. */
struct asked {
	size_t n;
	uint64_t bytes;
	char oldest[256];
	struct timespec used;
};

static bool is_kept(const struct template_job *job, const char *name)
{
	for (size_t i = 0; i < job->n_keep; i++)
		if (strcmp(job->keep[i], name) == 0)
			return true;
	return name[0] == '.' || strstr(name, ".tmp");
}

static bool is_image(int parent, const char *name)
{
	char path[256 + sizeof("/manifest")];

	snprintf(path, sizeof(path), "%s/manifest", name);
	return faccessat(parent, path, F_OK, 0) == 0;
}

static void add_asked(struct asked *a, int parent, const char *name)
{
	struct stat st;

	if (!is_image(parent, name) || fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return;
	if (!a->n || st.st_mtim.tv_sec < a->used.tv_sec ||
	    (st.st_mtim.tv_sec == a->used.tv_sec && st.st_mtim.tv_nsec < a->used.tv_nsec)) {
		snprintf(a->oldest, sizeof(a->oldest), "%s", name);
		a->used = st.st_mtim;
	}
	a->n++;
	a->bytes += image_bytes(parent, name);
}

static struct asked find_asked(int parent, const struct template_job *job)
{
	DIR *d = fdopendir(dup(parent));
	struct asked out = {0};
	struct dirent *entry;

	if (!d)
		return out;
	rewinddir(d);
	while ((entry = readdir(d)))
		if (!is_kept(job, entry->d_name))
			add_asked(&out, parent, entry->d_name);
	closedir(d);
	return out;
}

/* Evicts the least recently used images after a new one was added. */
static void evict(int parent, const struct template_job *job)
{
	struct asked a = find_asked(parent, job);

	while (a.n > 1 && (a.n > ASKED_MAX || a.bytes > ASKED_BYTES)) {
		remove_image(parent, a.oldest);
		if (is_image(parent, a.oldest)) {
			log_warn("the image %s/%s can't be removed", job->dir, a.oldest);
			return;
		}
		a = find_asked(parent, job);
	}
}

int template_files_check(void *arg)
{
	struct template_job *job = arg;
	struct err reason;
	char tmp[TEMPLATE_NAME_LEN + 8];

	/* Take the stamp before the files are read: a later change is then noticed. */
	source_stamp(&job->source, &job->source.stamp);
	int ret = name_of(job);
	if (ret < 0)
		return ret;
	scoped_fd int parent = directory_open(job->dir, &job->job.err);
	if (parent < 0)
		return parent;
	snprintf(tmp, sizeof(tmp), "%s.tmp", job->name);
	remove_image(parent, tmp);
	sweep_others(parent, job);
	scoped_fd int dir = openat(parent, job->name, O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (dir < 0)
		return 1;
	if (!job->discard && check_image(dir, job, &reason) == 0) {
		futimens(dir, NULL); /* mark as used now */
		job->bytes = image_bytes(parent, job->name);
		job->found = true;
		return 1;
	}
	snprintf(job->remark, sizeof(job->remark), "%s",
		 job->discard ? "restores from it failed" : reason.text);
	remove_image(parent, job->name);
	return 1;
}

/* --- make ----------------------------------------------------------------------------------- */

/* Copies a file of the snapshot; zeros become holes. */
static int write_file(int dir, const char *name, int from, struct err *e)
{
	scoped_fd int to = openat(dir, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	struct file_walk walk;
	uint64_t done = 0;
	struct stat st;

	if (to < 0 || fstat(from, &st) < 0)
		return err_set(e, errno, "create the image's %s file", name);
	int ret = file_walk_begin(&walk, from, to, (uint64_t)st.st_size, e);
	if (ret == 0)
		ret = file_walk_step(&walk, UINT64_MAX, &done, e);
	file_walk_end(&walk);
	return ret < 0 ? err_context(e, "the image's %s file", name) : 0;
}

/* Writes the state and the memory; the disk layer is in the directory already. */
static int write_snapshot(int dir, const struct vmproc_image *image, struct err *e)
{
	int ret = 0;

	for (size_t i = 0; i < 2 && ret == 0; i++)
		ret = write_file(dir, files[i], image->fds[i], e);
	return ret;
}

static int write_manifest(int dir, const struct template_job *job, struct err *e)
{
	const struct size *size = &job->size;
	struct manifest m = {.version = MANIFEST_VERSION,
			     .vcpus = size->vcpus,
			     .ram_mib = size->ram_mib,
			     .rootfs_gb = size->rootfs_gb};
	uint64_t *const sizes[] = {&m.state_bytes, &m.memory_bytes, &m.layer_bytes};
	char text[MANIFEST_MAX];

	memcpy(m.template, job->source.name, sizeof(m.template));
	memcpy(m.key, job->key, sizeof(m.key));
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		struct stat st;
		scoped_fd int fd = openat(dir, files[i], O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

		/* A Space recognizes a template's files by this mode. */
		if (fd < 0 || fstat(fd, &st) < 0 || fchmod(fd, TEMPLATE_FILE_MODE) < 0 ||
		    fsync(fd) < 0)
			return err_set(e, errno, "write %s to disk", files[i]);
		*sizes[i] = (uint64_t)st.st_size;
	}
	if (m.memory_bytes != (uint64_t)size->ram_mib << 20 || !m.state_bytes)
		return err_say(e, EIO, "the VM process saved an image of the wrong size");
	size_t len = manifest_write(&m, text, sizeof(text));
	scoped_fd int fd = openat(dir, "manifest", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, text, len) != (ssize_t)len || fsync(fd) < 0)
		return err_set(e, errno, "write its manifest");
	return fsync(dir) < 0 ? err_set(e, errno, "write its directory to disk") : 0;
}

int template_files_publish(void *arg)
{
	struct template_job *job = arg;
	struct err *e = &job->job.err;
	char tmp[TEMPLATE_NAME_LEN + 8];

	snprintf(tmp, sizeof(tmp), "%s.tmp", job->name);
	scoped_fd int parent = directory_open(job->dir, e);
	if (parent < 0)
		return parent;
	scoped_fd int dir = openat(parent, tmp, O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (dir < 0)
		return err_set(e, errno, "open %s/%s", job->dir, tmp);
	int ret = write_snapshot(dir, job->image, e);
	if (ret == 0)
		ret = write_manifest(dir, job, e);
	if (ret == 0 && renameat(parent, tmp, parent, job->name) < 0)
		ret = err_set(e, errno, "rename %s/%s", job->dir, tmp);
	if (ret < 0) {
		remove_image(parent, tmp);
		return ret;
	}
	fsync(parent);
	job->bytes = image_bytes(parent, job->name);
	evict(parent, job);
	return 1;
}

int template_files_clean(void *arg)
{
	struct template_job *job = arg;
	char tmp[TEMPLATE_NAME_LEN + 8];
	scoped_fd int parent = directory_open(job->dir, &job->job.err);

	snprintf(tmp, sizeof(tmp), "%s.tmp", job->name);
	if (parent >= 0)
		remove_image(parent, tmp);
	return 1;
}

/* --- what a build needs ---------------------------------------------------------------------- */

static int make_directory(const struct build_files *b, struct err *e)
{
	char path[2 * CONFIG_PATH_MAX];

	snprintf(path, sizeof(path), "%s/templates/%s.tmp", b->state_dir, b->name);
	if (mkdir(path, 0700) < 0)
		return err_set(e, errno, "make %s", path);
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? err_set(e, errno, "open %s", path) : fd;
}

static int open_boot(struct build_files *b, int dir, int *fds, struct err *e)
{
	const char *const paths[] = {b->kernel, b->initramfs, b->source.rootfs};
	struct stat st;

	for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
		if (!paths[i][0])
			continue;
		int fd = fds[b->n_boot++] = open(paths[i], O_RDONLY | O_CLOEXEC);
		if (fd < 0 || fstat(fd, &st) < 0)
			return err_set(e, errno, "open %s", paths[i]);
		b->rootfs_bytes =
			(uint64_t)st.st_size; /* ends as the size of the last file, the rootfs */
	}
	int layer = openat(dir, "layer-0", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (layer < 0)
		return err_set(e, errno, "create the template's disk layer");
	fds[b->n_boot++] = layer;
	return 0;
}

static int read_warmup(struct build_files *b, struct err *e)
{
	const char *path = b->source.warmup;
	ssize_t got = 1;

	if (!path[0])
		return 0;
	scoped_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return err_set(e, errno, "read %s", path);
	for (; b->warmup_len <= SOURCE_WARMUP_MAX; b->warmup_len += (size_t)got) {
		got = read(fd, b->warmup + b->warmup_len, sizeof(b->warmup) - b->warmup_len);
		if (got <= 0)
			break;
	}
	if (got == 0)
		return 0;
	if (got < 0)
		return err_set(e, errno, "read %s", path);
	return err_say(e, EFBIG, "%s is larger than %u bytes", path, SOURCE_WARMUP_MAX);
}

int build_files_open(struct disk_job *job)
{
	struct build_files *b = job->what;
	scoped_fd int dir = make_directory(b, &job->job.err);

	if (dir < 0)
		return dir;
	int ret = open_boot(b, dir, job->fds, &job->job.err);
	if (ret == 0)
		ret = job->fds[NEXT_LAYER_FD] = disk_layer_new(b->state_dir, &job->job.err);
	return ret >= 0 ? read_warmup(b, &job->job.err) : ret;
}
