// SPDX-License-Identifier: Apache-2.0
/*
 * The versions of all protocols and files: the one that this Ramet writes, and the oldest one that
 * it reads. Whoever reads another version refuses it with the message of base/version.h.
 * docs/internals/versions.md says what a new version costs, and which one must be readable.
 * The version of the catalogue is the last step in orchestrator/store/schema.sql.
 */
#ifndef RAMET_PROTO_VERSIONS_H
#define RAMET_PROTO_VERSIONS_H

/* Protocols. */
#define AGENT_VERSION	     6 /* service and agent (proto/agent.h) */
#define AGENT_VERSION_OLDEST 6
#define CTL_VERSION	     6 /* service and VM process (proto/ctl.h) */
#define CTL_VERSION_OLDEST   6
#define WARDEN_VERSION	     4 /* service and warden (proto/warden.h); both are of one Ramet */

/* Files of a snapshot (proto/image.h): of templates and Spaces. */
#define IMAGE_STATE_VERSION	    4
#define IMAGE_STATE_VERSION_OLDEST  4
#define IMAGE_MEMORY_VERSION	    2
#define IMAGE_MEMORY_VERSION_OLDEST 2
#define IMAGE_LAYER_VERSION	    1
#define IMAGE_LAYER_VERSION_OLDEST  1

/* Files of the service. */
#define IMAGE_MANIFEST_VERSION	      1 /* of the directory of a template or Space */
#define IMAGE_MANIFEST_VERSION_OLDEST 1
#define JOURNAL_VERSION		      2 /* session journal of a VM */
#define JOURNAL_VERSION_OLDEST	      1

#endif
