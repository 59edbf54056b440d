// SPDX-License-Identifier: Apache-2.0
/*
 * The service's settings. Each comes from, in rising priority: its default, the configuration file
 * (`name = value` lines, # comments), the environment (RAMET_NAME), a flag (--name=value). Each
 * value is checked where it is read; an error names its file and line, variable or flag, and the
 * allowed range. A new setting is a field here and a row in config.c's table.
 */
#ifndef RAMET_ORCHESTRATOR_CONFIG_CONFIG_H
#define RAMET_ORCHESTRATOR_CONFIG_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define CONFIG_PATH_MAX 256
#define CONFIG_FILE	"/etc/ramet/ramet.conf" /* read when no --config is given and it exists */

/* Plain data without pointers: the warden hands it to the service as bytes. */
struct config {
	char listen_host[64]; /* 127.0.0.1 */
	uint32_t listen_port; /* 7070 */
	char allow_open[4];   /* "yes" or no: an address others can reach, without keys or TLS */
	char tls_cert[CONFIG_PATH_MAX], tls_key[CONFIG_PATH_MAX]; /* empty: no TLS */
	char region[32], endpoint[CONFIG_PATH_MAX];		  /* empty: not told */
	char trusted_proxies[CONFIG_PATH_MAX]; /* ranges whose X-Forwarded-For is believed */
	/* Each second; 0: no limit. Of one address: new connections, requests without a good key,
	 * keys that are none; of one tenant: requests. */
	uint32_t client_connections_s, client_requests_s, client_failures_s, tenant_requests_s;

	char vmm[CONFIG_PATH_MAX];	 /* /usr/lib/ramet/ramet-vmm */
	char kernel[CONFIG_PATH_MAX];	 /* /usr/share/ramet/vmlinux */
	char initramfs[CONFIG_PATH_MAX]; /* /usr/share/ramet/initramfs.cpio */
	char rootfs[CONFIG_PATH_MAX];	 /* /usr/share/ramet/rootfs.ext4 */
	char warmup[CONFIG_PATH_MAX];	 /* Python run before the default image; empty: nothing */
	char templates_dir[CONFIG_PATH_MAX]; /* /usr/share/ramet/templates; empty: none */
	char state_dir[CONFIG_PATH_MAX];     /* /var/lib/ramet */
	char run_dir[CONFIG_PATH_MAX];	     /* /run/ramet; short: control sockets are under it */
	char user[32];			     /* ramet: the account rametd drops to, or a number */
	char cgroup[CONFIG_PATH_MAX];	     /* cgroup v2 path to work under; empty: the own one */
	uint32_t vm_uid_base;		     /* 300000 */
	uint32_t max_vms;		     /* 256; at most WARDEN_SLOTS_MAX */
	uint32_t memory_mib;		     /* of all together; 0: what the host can spare */
	uint32_t memory_overcommit;	     /* percent of it that may be promised; 0: any */
	uint32_t cpu_weight;		     /* of all together: 1000 */
	char core_scheduling[4];	     /* "yes" or no: a core runs one VM at a time */
	uint32_t disk_bytes_s, disk_ops_s;   /* of each VM's disk; 0: no limit */
	uint32_t output_mib;		     /* of held output; 0: by the host's memory */

	uint32_t vcpus, ram_mib, rootfs_gb; /* of the default template: 2, 512, 4 */
	char sizes[CONFIG_PATH_MAX];	    /* prepared ahead: "auto", or see config_sizes */
	uint32_t pool_shells, pool_warm;    /* kept ready: 6, 2 */
	uint32_t pool_others;		    /* warm, of each other size and template: 2 */
	uint32_t fork_max;		    /* children of one fork: 32; at most 1000 */
	uint32_t timeout_s, idle_timeout_s; /* of a sandbox when it asks for none: 86400, 3600 */
	uint32_t boot_timeout_s;	    /* template boot: 300 */
	uint32_t stop_timeout_s;	    /* for running requests when rametd stops: 10 */

	char network[32];		     /* IPv4 range of the links to VMs; empty: no network */
	char dns[64];			     /* empty: this host's own */
	char ipv6[8];			     /* "auto", "yes", "no" */
	char allow[CONFIG_PATH_MAX];	     /* private ranges that VMs may reach */
	uint32_t net_bytes_s, net_packets_s; /* each way; 0: no limit */
	uint32_t net_connections_s, net_connections;

	char tier_free[160], tier_pro[160], tier_scale[160], tier_enterprise[160]; /* tiers.h */

	uint32_t max_body_bytes; /* request body: 67108864 */
	char log_level[8];	 /* debug, info, warn, error */
	char log_format[8];	 /* text, json */

	char audit_dir[CONFIG_PATH_MAX];      /* see config_audit_dir; empty: no audit log */
	uint32_t audit_max_mib, audit_files;  /* of one file; files with the current one */
	char webhook_url[512];		      /* empty: none */
	char webhook_secret[128];	      /* HMAC-SHA256 of each body */
	char webhook_events[CONFIG_PATH_MAX]; /* names with commas between; * at the end of one */
	char webhook_http[4];	      /* "yes" or no: without TLS to others than this host */
	char notify[CONFIG_PATH_MAX]; /* /usr/lib/ramet/ramet-notify */
};

/* Fills *out with the defaults. */
void config_defaults(struct config *out);

/* Fills *out. `argv` may hold --config=FILE and --NAME=VALUE for every setting; --help and
 * --version are the caller's. */
int config_load(struct config *out, int argc, char *const argv[], struct err *e);

/* Applies the text of one configuration file, called `name` in errors, to *out. The file's part of
 * config_load: settings that depend on each other are not compared yet. */
int config_parse(struct config *out, const char *name, const char *text, size_t len, struct err *e);

/* The setting `sizes` names none, but leaves it to the host and the tiers. */
bool config_sizes_auto(const struct config *c);
/* The sizes it names else. Returns how many there are; -errno with *e filled when it is malformed.
 */
#define CONFIG_SIZES_MAX 16
struct config_size {
	uint32_t ram_mib, vcpus;
	uint32_t rootfs_gb; /* 0: the template's own */
};
int config_sizes(const struct config *c, struct config_size out[CONFIG_SIZES_MAX], struct err *e);

/* The commented configuration file that documents every setting with its default. */
const char *config_example(void);

/* The folder of the audit log as a path: audit_dir itself, or state_dir/audit_dir. */
void config_audit_dir(const struct config *c, char *out, size_t size);
#define CATALOGUE_PATH_MAX (CONFIG_PATH_MAX + 32)
/* The catalogue, and its live copy in run_dir (orchestrator/store). */
void config_catalogue(const struct config *c, char out[static CATALOGUE_PATH_MAX]);
void config_live_catalogue(const struct config *c, char out[static CATALOGUE_PATH_MAX]);

/* log_level as base/log.h counts it. */
int config_log_level(const struct config *c);

#endif
