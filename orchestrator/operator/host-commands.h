// SPDX-License-Identifier: Apache-2.0
/* The commands of host_commands: words, arguments, help, function, n_plain, wait (struct command).
 * rametctl, which is linked without the functions, needs the rest of them for its help. */
#ifndef RAMET_ORCHESTRATOR_OPERATOR_HOST_COMMANDS_H
#define RAMET_ORCHESTRATOR_OPERATOR_HOST_COMMANDS_H

/* clang-format off */
#define HOST_COMMANDS(ROW) \
	ROW("ls", "", \
	    "lists sandboxes; SIZE: MiB of RAM x vCPUs, MEMORY: private memory of the VM", \
	    ls, 0, COMMAND_AT_ONCE) \
	ROW("top", "[--once]", \
	    "shows the resource usage of sandboxes, updated every second", \
	    by_rametctl, OWN_OPTIONS, COMMAND_AT_ONCE) \
	ROW("doctor", "[--json]", \
	    "checks whether this host can run Ramet, and run it well", \
	    by_rametctl, OWN_OPTIONS, COMMAND_AT_ONCE) \
	ROW("canary", "", \
	    "makes a sandbox, forks it and removes both; shows how long that took", \
	    NULL, 0, COMMAND_CANARY) \
	ROW("processes", "", \
	    "lists id, pid, state, tenant and template of sandboxes, tab-separated", \
	    processes, 0, COMMAND_AT_ONCE) \
	ROW("checks", "", \
	    "shows the checks of /readyz: ok, or what is wrong", \
	    checks, 0, COMMAND_AT_ONCE) \
	ROW("loads", "", \
	    "lists number, sandboxes and free MiB of the fleet's hosts that answer", \
	    loads, 0, COMMAND_LOADS) \
	ROW("inspect", "ID", \
	    "reports why a VM makes no progress; ID: a sandbox, or the slot of a VM", \
	    NULL, 1, COMMAND_INSPECT) \
	ROW("backup", "DIR", \
	    "writes the catalogue and all Spaces, checked, to the new folder DIR", \
	    NULL, 1, COMMAND_BACKUP) \
	ROW("check", "[DIR]", \
	    "checks the catalogue and the files of all Spaces, here or in a backup", \
	    by_rametctl, OWN_OPTIONS, COMMAND_AT_ONCE) \
	ROW("restore", "DIR [--skip-damaged]", \
	    "puts a backup into the empty state_dir of a service that is stopped", \
	    by_rametctl, OWN_OPTIONS, COMMAND_AT_ONCE) \
	ROW("fleet", "init | ca | join | status | haproxy | check", \
	    "makes a fleet of hosts, and adds hosts to it; `rametctl fleet` explains each of them", \
	    by_rametctl, OWN_OPTIONS, COMMAND_AT_ONCE) \
	ROW("host", "list | drain | undrain | forget", \
	    "lists the fleet's hosts, and takes one out; `rametctl host` explains each of them", \
	    by_rametctl, OWN_OPTIONS, COMMAND_AT_ONCE)
/* clang-format on */

#endif
