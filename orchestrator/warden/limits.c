// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/warden/limits.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/text-file.h"
#include "base/num.h"
#include "orchestrator/warden/cgroup.h"

#define SENTENCE_MAX 512

/* What each VM takes, measured with the default settings and rounded up, and what the rest takes.
 */
#define FILES_OF_WARDEN 4  /* for each VM; the service has 2 */
#define FILES_OF_VM	64 /* descriptors of a VM: in its process, the service and the warden */
#define THREADS_OF_VM	4  /* without its vCPUs; some are of the kernel */
#define MAPS_OF_SERVICE 2  /* for each VM */
/* Neighbour entries of a VM: three in fact; the host needs some as well. */
#define NEIGHBOURS    4
#define FILES_REST    1024
#define THREADS_REST  1024
#define MAPS_REST     4096
#define SPACES_REST   128 /* namespaces that are kept for the next VMs, and some more */
#define CGROUPS_REST  8
#define CGROUP_LEVELS 2 /* BASE/ramet/vm-SLOT */

/* A limit of the host. The service needs `per_vm` for each of its max_vms VMs, and `rest`. */
struct row {
	const char *name;
	const char *how; /* how to raise it; NULL: `name` is a sysctl */
	uint32_t per_vm, rest;
};

static const struct row rows[LIMITS] = {
	[LIMIT_NOFILE] = {"RLIMIT_NOFILE",
			  "set LimitNOFILE= of ramet.service, or `ulimit -Hn`, "
			  "to at least",
			  FILES_OF_WARDEN, FILES_REST},
	[LIMIT_NR_OPEN] = {"fs.nr_open", NULL, FILES_OF_WARDEN, FILES_REST},
	[LIMIT_FILE_MAX] = {"fs.file-max", NULL, FILES_OF_VM, FILES_REST},
	[LIMIT_PID_MAX] = {"kernel.pid_max", NULL, THREADS_OF_VM, THREADS_REST},
	[LIMIT_THREADS_MAX] = {"kernel.threads-max", NULL, THREADS_OF_VM, THREADS_REST},
	[LIMIT_MAP_COUNT] = {"vm.max_map_count", NULL, MAPS_OF_SERVICE, MAPS_REST},
	[LIMIT_NET_NS] = {"user.max_net_namespaces", NULL, 1, SPACES_REST},
	[LIMIT_PID_NS] = {"user.max_pid_namespaces", NULL, 1, SPACES_REST},
	[LIMIT_MNT_NS] = {"user.max_mnt_namespaces", NULL, 1, SPACES_REST},
	[LIMIT_IPC_NS] = {"user.max_ipc_namespaces", NULL, 1, SPACES_REST},
	[LIMIT_UTS_NS] = {"user.max_uts_namespaces", NULL, 1, SPACES_REST},
	[LIMIT_CGROUP_NS] = {"user.max_cgroup_namespaces", NULL, 1, SPACES_REST},
	[LIMIT_NEIGHBOURS] = {"net.ipv4.neigh.default.gc_thresh3", NULL, NEIGHBOURS, 0},
	[LIMIT_NEIGHBOURS6] = {"net.ipv6.neigh.default.gc_thresh3", NULL, NEIGHBOURS, 0},
	[LIMIT_CONNTRACK] = {"net.netfilter.nf_conntrack_max", NULL, 0, 0},
	[LIMIT_TASKS] = {"pids.max of rametd's cgroup, or of one above it,",
			 "set TasksMax= of its unit or slice, or pids.max itself, to at least",
			 THREADS_OF_VM, THREADS_REST},
	[LIMIT_DESCENDANTS] = {"cgroup.max.descendants of rametd's cgroup, or of one above it,",
			       "write there at least", 1, CGROUPS_REST},
	[LIMIT_DEPTH] = {"the rest of cgroup.max.depth below rametd's cgroup",
			 "set cgroup.max.depth above it so that there remain at least", 0,
			 CGROUP_LEVELS},
};

/* --- what is needed -------------------------------------------------------------------------- */

uint64_t limits_need(enum host_limit limit, const struct config *c)
{
	bool network = limit >= LIMIT_NEIGHBOURS && limit <= LIMIT_CONNTRACK;
	uint64_t per_vm = rows[limit].per_vm;

	if (network && (!c->network[0] || (limit == LIMIT_NEIGHBOURS6 && c->ipv6[0] == 'n')))
		return 0;
	if (limit == LIMIT_CONNTRACK)
		per_vm = c->net_connections;
	if (limit == LIMIT_PID_MAX || limit == LIMIT_THREADS_MAX || limit == LIMIT_TASKS)
		per_vm += c->vcpus;
	return c->max_vms * per_vm + rows[limit].rest;
}

static void report(enum host_limit limit, uint64_t most, uint64_t need, const struct config *c,
		   void (*notify)(void *arg, const char *sentence), void *arg)
{
	const struct row *row = &rows[limit];
	char sentence[SENTENCE_MAX], how[SENTENCE_MAX / 2];

	if (row->how)
		snprintf(how, sizeof(how), "%s %llu", row->how, (unsigned long long)need);
	else
		snprintf(how, sizeof(how), "`sysctl -w %s=%llu`, and a line in /etc/sysctl.d",
			 row->name, (unsigned long long)need);
	snprintf(sentence, sizeof(sentence), "%s is %llu, but max_vms = %u needs %llu: %s",
		 row->name, (unsigned long long)most, c->max_vms, (unsigned long long)need, how);
	notify(arg, sentence);
}

void limits_check(const struct host_limits *limits, const struct config *config,
		  void (*notify)(void *arg, const char *sentence), void *arg)
{
	for (enum host_limit i = 0; i < LIMITS; i++) {
		uint64_t need = limits_need(i, config);

		if (limits->most[i] < need)
			report(i, limits->most[i], need, config, notify, arg);
	}
}

/* --- what the host has ----------------------------------------------------------------------- */

/* Returns the number in a file; LIMIT_NONE when it is "max", or there is no such file. */
static uint64_t read_number(const char *path)
{
	char text[32], *end;

	text_file_read(AT_FDCWD, path, text, sizeof(text));
	errno = 0;
	unsigned long long value = strtoull(text, &end, 10);
	return end == text || errno ? LIMIT_NONE : value;
}

static uint64_t read_sysctl(const char *name)
{
	char path[128];

	snprintf(path, sizeof(path), "/proc/sys/%s", name);
	for (char *dot = path; (dot = strchr(dot, '.'));)
		*dot = '/';
	return read_number(path);
}

/* rametd raises the limit up to fs.nr_open, if root may do that here. */
static uint64_t read_files(uint64_t nr_open)
{
	struct rlimit files;

	if (prctl(PR_CAPBSET_READ, CAP_SYS_RESOURCE, 0, 0, 0) == 1)
		return nr_open;
	if (getrlimit(RLIMIT_NOFILE, &files) < 0 || files.rlim_max == RLIM_INFINITY)
		return LIMIT_NONE;
	return files.rlim_max;
}

static uint64_t read_in(const char *cgroup, const char *file)
{
	char path[CGROUP_PATH_MAX + 32];

	snprintf(path, sizeof(path), "%s/%s", cgroup, file);
	return read_number(path);
}

/* The root cgroup has none of these files. */
static void read_cgroups(struct host_limits *out, const struct config *config)
{
	char path[CGROUP_PATH_MAX], point[CGROUP_PATH_MAX];
	uint64_t above = 0; /* levels between the cgroup and the base */

	if (cgroup_find_base(path, point, config->cgroup, NULL) < 0)
		return;
	for (size_t root = strlen(point); strlen(path) > root; above++) {
		uint64_t depth = read_in(path, "cgroup.max.depth");
		uint64_t rest = depth == LIMIT_NONE ? depth : depth - min_u64(above, depth);

		out->most[LIMIT_TASKS] = min_u64(out->most[LIMIT_TASKS], read_in(path, "pids.max"));
		out->most[LIMIT_DESCENDANTS] = min_u64(out->most[LIMIT_DESCENDANTS],
						       read_in(path, "cgroup.max.descendants"));
		out->most[LIMIT_DEPTH] = min_u64(out->most[LIMIT_DEPTH], rest);
		*strrchr(path, '/') = '\0';
	}
}

void limits_read(struct host_limits *out, const struct config *config)
{
	for (enum host_limit i = 0; i < LIMITS; i++)
		out->most[i] =
			i == LIMIT_NOFILE || rows[i].how ? LIMIT_NONE : read_sysctl(rows[i].name);
	out->most[LIMIT_NOFILE] = read_files(out->most[LIMIT_NR_OPEN]);
	read_cgroups(out, config);
}

void limits_use_unit(struct config *config, const char *root)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/sys/fs/cgroup" LIMITS_UNIT_CGROUP, root);
	if (!config->cgroup[0] && access(path, F_OK) == 0)
		snprintf(config->cgroup, sizeof(config->cgroup), LIMITS_UNIT_CGROUP);
}

void limits_check_host(const struct config *config, void (*notify)(void *arg, const char *sentence),
		       void *arg)
{
	struct host_limits limits;

	limits_read(&limits, config);
	limits_check(&limits, config, notify, arg);
}
