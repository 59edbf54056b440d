// SPDX-License-Identifier: Apache-2.0
/* The service's numbers, from the rooms that count them. */
#include "base/fd.h"
#include "orchestrator/exec/queue.h"
#include "orchestrator/guestops/state.h"
#include "orchestrator/images/templates.h"
#include "orchestrator/observe/sampler.h"
#include "orchestrator/pool/pool.h"
#include "orchestrator/ports/state.h"
#include "orchestrator/service/service.h"
#include "orchestrator/service/upkeep.h"
#include "orchestrator/snapshot/state.h"

void service_metrics(const struct service *c, void (*each)(void *arg, const struct metric *m),
		     void *arg)
{
	const struct exec_service *calls = exec_of_service(c);
	const struct guestops_service *ops = guestops_of_service(c);
	const struct ports_service *ports = ports_of_service(c);
	const struct snapshot_service *snapshots = snapshots_of_service(c);
	const struct memory_use memory = sampler_memory(c);
	struct pool_stats pool;

	pool_stats(c->pool, &pool);
	const struct metric all[] = {
		{"ramet_sandboxes", "Current number of sandboxes.", c->n_sandboxes},
		{"ramet_creates_total", "Sandboxes created.", c->stats.creates},
		{"ramet_create_failures_total", "Creates that failed.", c->stats.create_failures},
		{"ramet_execs_total", "Calls of exec started.", calls->execs},
		{"ramet_vm_deaths_total", "VMs that died unexpectedly.", c->stats.vm_deaths},
		{"ramet_file_calls_total", "Operations on files started.", ops->file_calls},
		{"ramet_file_failures_total", "Operations on files that failed.",
		 ops->file_failures},
		{"ramet_file_bytes_in_total", "Bytes of files written into guests.",
		 ops->file_bytes_in},
		{"ramet_file_bytes_out_total", "Bytes of files read from guests.",
		 ops->file_bytes_out},
		{"ramet_ptys_total", "Terminals started.", ops->terminals.started},
		{"ramet_pty_bytes_in_total", "Bytes typed into terminals.",
		 ops->terminals.bytes_in},
		{"ramet_pty_bytes_out_total",
		 "Bytes of terminals' output, counted for each listener.",
		 ops->terminals.bytes_out},
		{"ramet_processes_total", "Processes started.", ops->processes.started},
		{"ramet_process_bytes_in_total", "Bytes written to processes' standard input.",
		 ops->processes.bytes_in},
		{"ramet_process_bytes_out_total",
		 "Bytes of processes' output, counted for each listener.",
		 ops->processes.bytes_out},
		{"ramet_operations", "Operations on files and processes in flight.",
		 ops->operations},
		{"ramet_listeners", "Listeners to processes and terminals.", ops->listeners},
		{"ramet_port_connections", "Open connections to servers in sandboxes.",
		 ports->tunnels},
		{"ramet_port_connects_total",
		 "Connections to servers in sandboxes that were begun.", ports->connects},
		{"ramet_port_failures_total", "Connections to servers in sandboxes that failed.",
		 ports->failures},
		{"ramet_port_bytes_in_total", "Bytes passed to servers in sandboxes.",
		 ports->bytes_to_guest},
		{"ramet_port_bytes_out_total", "Bytes passed from servers in sandboxes.",
		 ports->bytes_to_client},
		{"ramet_pool_hits_total", "Creates served by a warm sandbox.", c->stats.pool_hits},
		{"ramet_pool_misses_total", "Creates that found no warm sandbox.",
		 c->stats.pool_misses},
		{"ramet_template_boots_total", "Snapshots of templates made.",
		 templates_boots(c->templates)},
		{"ramet_sizes_unlisted_total",
		 "Snapshots made for a request, since the setting sizes does not list their size.",
		 templates_unlisted(c->templates)},
		{"ramet_templates_building", "Snapshots of templates being made now.",
		 templates_preparing(c->templates)},
		{"ramet_blank_vms_ready", "Blank VMs in the pool.", pool.blanks},
		{"ramet_warm_ready", "Warm sandboxes in the pool.", pool.warm},
		{"ramet_warm_default_ready",
		 "Warm sandboxes of the default template and size in the pool.", pool.warm_default},
		{"ramet_forks_total", "Forks made, each with any number of children.",
		 snapshots->forks},
		{"ramet_fork_failures_total",
		 "Forks, checkpoints, rollbacks, and starts from checkpoints and Spaces that "
		 "failed "
		 "or were refused.",
		 snapshots->fork_failures},
		{"ramet_merges_total", "Merges made.", snapshots->merges},
		{"ramet_freezes_total", "Sandboxes frozen to Spaces.", snapshots->n_frozen},
		{"ramet_freeze_failures_total", "Freezes that failed.", snapshots->freeze_failures},
		{"ramet_resumes_total", "Spaces resumed.", snapshots->n_resumed},
		{"ramet_resume_failures_total", "Resumes that failed.", snapshots->resume_failures},
		{"ramet_spaces", "Current number of Spaces.", snapshots->n_spaces},
		{"ramet_spaces_bytes", "Bytes of disk that Spaces take.", snapshots->spaces_bytes},
		{"ramet_spaces_damaged", "Spaces whose checksums are wrong.",
		 snapshots->spaces_damaged},
		{"ramet_spaces_lost", "Spaces on the disk that are missing from the catalogue.",
		 snapshots->spaces_lost},
		{"ramet_checkpoints", "Current number of checkpoints.", snapshots->n_checkpoints},
		{"ramet_checkpoints_bytes", "Bytes of disk that checkpoints take.",
		 snapshots->checkpoints_bytes},
		{"ramet_checkpoints_unstored", "Checkpoints that are in memory only.",
		 list_count(&snapshots->unwritten)},
		{"ramet_checkpoints_taken_total", "Checkpoints taken.", snapshots->n_taken},
		{"ramet_checkpoint_starts_total",
		 "Sandboxes started from checkpoints, and from Spaces that stay.",
		 snapshots->n_started},
		{"ramet_rollbacks_total", "Sandboxes rolled back to a checkpoint.",
		 snapshots->n_rollbacks},
		{"ramet_trees", "Current number of trees with a budget.", c->trees.n},
		{"ramet_tree_waits", "Forks that wait for room in their trees.", c->trees.waiting},
		{"ramet_tree_refusals_total",
		 "Forks and resumes that the budget of a tree refused.", c->trees.refused},
		{"ramet_tree_ends_total",
		 "Sandboxes that ended because of the budget of their tree.", c->trees.ended},
		{"ramet_sandboxes_by_state{state=\"ready\"}",
		 "Current number of sandboxes, by state.", c->n_in[SBX_READY]},
		{"ramet_sandboxes_by_state{state=\"running\"}", NULL, c->n_in[SBX_RUNNING]},
		{"ramet_sandboxes_by_state{state=\"adopting\"}", NULL, c->n_in[SBX_ADOPTING]},
		{"ramet_output_held_bytes",
		 "Bytes of memory for sandboxes' output: replay, and lines that have not ended.",
		 calls->output.held},
		{"ramet_output_dropped_bytes_total",
		 "Bytes of events dropped from the replay early because all output exceeded its "
		 "budget.",
		 calls->output_dropped_bytes},
		{"ramet_ends_unrecorded",
		 "Sandboxes whose end is not in the catalogue yet: each keeps a VM slot.",
		 c->ended.n_unrecorded},
		{"ramet_vm_slots_retired",
		 "VM slots that are not used, because starting a VM in them crashed the warden "
		 "twice.",
		 c->vms.retired},
		{"ramet_memory_private_bytes",
		 "Bytes of private memory of sandboxes' VMs, measured some seconds ago.",
		 memory.private_bytes},
		{"ramet_memory_shared_bytes",
		 "Bytes of snapshots that sandboxes' VMs map, counted for each VM.",
		 memory.shared_bytes},
		{"ramet_disk_free_bytes", "Free bytes on the disk of state_dir.",
		 upkeep_of(c)->disk.found.free_bytes},
		/* Must be the last one: left out without a fleet. */
		{"ramet_limits_away",
		 "In a fleet: tenants for whom this host cannot get a larger part of their limits, "
		 "since the host that divides them does not answer, or is not ready to.",
		 c->limits_away},
	};
	for (size_t i = 0; i < ARRAY_LEN(all) - !c->member; i++)
		each(arg, &all[i]);
}
