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

#include "base/address.h"
#include "base/err.h"
#include "orchestrator/config/sandbox-config.h"

#define CONFIG_PATH_MAX	  256
#define CONFIG_REGION_MAX 31
#define CONFIG_FILE	  "/etc/ramet/ramet.conf" /* read when no --config is given and it exists */

/* Plain data without pointers: the warden hands it to the service as bytes. */
struct config {
	char listen_host[64]; /* 127.0.0.1 */
	uint32_t listen_port; /* 7070 */
	char allow_open[4];   /* "yes" or no: serve other machines without keys or TLS */
	char tls_cert[CONFIG_PATH_MAX], tls_key[CONFIG_PATH_MAX]; /* empty: no TLS */
	char region[CONFIG_REGION_MAX + 1];			  /* empty: not reported */
	char endpoint[CONFIG_PATH_MAX];				  /* empty: not reported */
	char regions[4 * CONFIG_PATH_MAX];     /* names and endpoints of other regions; see
						  config_regions */
	char sandbox_domain[CONFIG_PATH_MAX];  /* servers in sandboxes get names below it */
	uint32_t port_idle_timeout_s;	       /* for connections to servers in sandboxes: 900 */
	uint32_t visitor_connections;	       /* of one client address to shared ports: 64 */
	char trusted_proxies[CONFIG_PATH_MAX]; /* ranges whose X-Forwarded-For is trusted */
	/* Limits per second; 0: no limit. Per client address: new connections, requests without a
	 * valid key, wrong keys. Per tenant: requests. */
	uint32_t client_connections_s, client_requests_s, client_failures_s, tenant_requests_s;

	char vmm[CONFIG_PATH_MAX];	 /* /usr/lib/ramet/ramet-vmm */
	char kernel[CONFIG_PATH_MAX];	 /* /usr/share/ramet/vmlinux */
	char initramfs[CONFIG_PATH_MAX]; /* /usr/share/ramet/initramfs.cpio */
	char rootfs[CONFIG_PATH_MAX];	 /* /usr/share/ramet/rootfs.ext4 */
	char warmup[CONFIG_PATH_MAX];	 /* Python run before the default snapshot; empty: none */
	char templates_dir[CONFIG_PATH_MAX]; /* /usr/share/ramet/templates; empty: none */
	char ui_dir[CONFIG_PATH_MAX];	     /* /usr/share/ramet/ui; empty: none */
	char state_dir[CONFIG_PATH_MAX];     /* /var/lib/ramet */
	char run_dir[CONFIG_PATH_MAX];	     /* /run/ramet; short: control sockets are under it */
	char user[32];			     /* ramet: the account rametd drops to, or a number */
	char cgroup[CONFIG_PATH_MAX];	     /* parent cgroup (v2 path); empty: rametd's own */
	uint32_t vm_uid_base;		     /* 300000 */
	uint32_t max_vms;		     /* 256; at most WARDEN_SLOTS_MAX */
	uint32_t memory_mib;	    /* VMs and rametd together; 0: what the host can spare */
	uint32_t memory_overcommit; /* percent of that memory that may be promised; 0: no limit */
	uint32_t cpu_weight;	    /* VMs and rametd together: 1000 */
	char core_scheduling[4];    /* "yes" or no: a core runs one VM at a time */
	uint32_t disk_bytes_s, disk_ops_s; /* limits of each VM's disk; 0: no limit */
	uint32_t output_mib; /* limit of held output; 0: depends on the host's memory */

	uint32_t vcpus, ram_mib, rootfs_gb; /* size of the default template: 2, 1024, 4 */
	char sizes[CONFIG_PATH_MAX];	    /* sizes prepared ahead: "auto", or see config_sizes */
	uint32_t pool_blank_vms, pool_warm; /* targets of the pool: 6, 2 */
	uint32_t pool_others;		    /* warm sandboxes of each further size or template: 2 */
	uint32_t fork_max;		    /* children of one fork: 32; at most 1000 */
	uint32_t timeout_s, idle_timeout_s; /* defaults for a sandbox: 86400, 3600 */
	uint32_t boot_timeout_s;	    /* boot of a template: 300 */
	uint32_t stop_timeout_s; /* time for running requests to end when rametd stops: 10 */

	char network[32];		     /* IPv4 range of the links to VMs; empty: no network */
	char dns[64];			     /* empty: the name server of this host */
	char ipv6[8];			     /* "auto", "yes", "no" */
	char allow[CONFIG_PATH_MAX];	     /* private ranges that VMs may reach */
	uint32_t net_bytes_s, net_packets_s; /* in each direction; 0: no limit */
	uint32_t net_connections_s, net_connections;

	char tier_free[160], tier_pro[160], tier_scale[160], tier_enterprise[160]; /* tiers.h */

	/* The fleet that this host is part of; fleet_dir empty: none. */
	char fleet_dir[CONFIG_PATH_MAX];	 /* has the table of its hosts */
	char fleet_id_key[CONFIG_PATH_MAX];	 /* keys that hide hosts in ids */
	char fleet_listen[ADDRESS_PORT_MAX + 1]; /* for requests that other hosts pass on */
	char fleet_ca[CONFIG_PATH_MAX], fleet_cert[CONFIG_PATH_MAX], fleet_key[CONFIG_PATH_MAX];

	uint32_t max_body_bytes; /* limit of a request body: 67108864 */
	char log_level[8];	 /* debug, info, warn, error */
	char log_format[8];	 /* text, json */

	uint32_t audit_max_mib, audit_days;   /* space and time for the events in the catalogue */
	char webhook_url[512];		      /* empty: none */
	char webhook_secret[128];	      /* key of the HMAC-SHA256 of each body */
	char webhook_events[CONFIG_PATH_MAX]; /* comma-separated names, each may end in * */
	char webhook_http[4];		      /* "yes" or no: http:// to another host is allowed */
	char otlp_url[512];		      /* empty: no spans */
	char notify[CONFIG_PATH_MAX];	      /* /usr/lib/ramet/ramet-notify */
};

/* Fills *out with the defaults. */
void config_defaults(struct config *out);

/* Fills *out from all sources. `argv` may hold --config=FILE and --NAME=VALUE for every setting;
 * the caller handles --help and --version. */
int config_load(struct config *out, int argc, char *const argv[], struct err *e);

/* Applies the text of one configuration file, called `name` in errors, to *out. Unlike config_load,
 * does not check settings that depend on each other. */
int config_parse(struct config *out, const char *name, const char *text, size_t len, struct err *e);

/* Returns whether the setting `sizes` is "auto": the service chooses the sizes. */
bool config_sizes_auto(const struct config *c);

#define CONFIG_SIZES_MAX 16
/* Writes the sizes that the setting `sizes` lists to `out` and returns their number; -EINVAL with
 * *e filled when the setting is malformed or "auto". */
int config_sizes(const struct config *c, struct size out[CONFIG_SIZES_MAX], struct err *e);

#define CONFIG_REGIONS_MAX 64
struct config_region {
	char name[CONFIG_REGION_MAX + 1], endpoint[CONFIG_PATH_MAX];
};
/* Writes the regions that the setting `regions` lists to `out` and returns their number; -EINVAL
 * with *e filled when the setting is malformed. */
int config_regions(const struct config *c, struct config_region out[CONFIG_REGIONS_MAX],
		   struct err *e);

struct tier;
/* Copies the tier called `name`, as configured, to *out; false if there is none of that name. */
bool tier_find(struct tier *out, const struct config *c, const char *name);
/* Fails with -EINVAL if no key may have the tier called `name`. */
int tier_check(const struct config *c, const char *name, struct err *e);
/* Copies the i-th tier to *out; false if there are fewer. */
bool tier_at(struct tier *out, const struct config *c, size_t i);
/* The names, for messages: "free, pro, scale or enterprise". */
extern const char tier_names[];

/* Returns the commented configuration file that documents every setting with its default; "" when
 * memory is short. */
const char *config_example(void);

#define CATALOGUE_PATH_MAX (CONFIG_PATH_MAX + 32)
/* Write the path of the catalogue, and of its live copy in run_dir (orchestrator/store). */
void config_catalogue(const struct config *c, char out[static CATALOGUE_PATH_MAX]);
void config_live_catalogue(const struct config *c, char out[static CATALOGUE_PATH_MAX]);

/* Returns log_level as one of base/log.h's levels. */
int config_log_level(const struct config *c);

#endif
