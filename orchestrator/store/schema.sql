-- The catalogue's tables, as steps. The first step makes all tables, each further one upgrades a catalogue
-- of the version before it. A released step must never change; add a new step instead.

-- step 10
CREATE TABLE sandboxes (
	id TEXT PRIMARY KEY,
	tenant TEXT NOT NULL,
	template TEXT NOT NULL,
	slot INTEGER NOT NULL,
	pid INTEGER NOT NULL,
	instance BLOB NOT NULL,		-- id of its VM process; empty: none
	vcpus INTEGER NOT NULL,
	ram_mib INTEGER NOT NULL,
	rootfs_gb INTEGER NOT NULL,
	timeout_s INTEGER NOT NULL,
	idle_timeout_s INTEGER NOT NULL,
	persistent INTEGER NOT NULL,
	egress INTEGER NOT NULL,
	created_at_ms INTEGER NOT NULL,
	expires_at_ms INTEGER NOT NULL,	-- 0: never
	seq_reserved INTEGER NOT NULL,	-- upper bound of the numbers of its events so far, exclusive
	metadata TEXT NOT NULL,
	env BLOB NOT NULL,		-- NAME=VALUE strings, each NUL-terminated
	ended_at_ms INTEGER NOT NULL,	-- 0: it is alive
	ended_code TEXT NOT NULL,
	ended_text TEXT NOT NULL,
	ancestors TEXT NOT NULL,	-- ids, oldest first, space-separated
	ports TEXT NOT NULL		-- shared ports: "PORT:PUBLIC:TOKEN ..."
) STRICT, WITHOUT ROWID;
CREATE INDEX sandboxes_ended ON sandboxes (ended_at_ms);
CREATE UNIQUE INDEX sandboxes_slot ON sandboxes (slot) WHERE ended_at_ms = 0;

CREATE TABLE keys (
	id TEXT PRIMARY KEY,		-- "key_" + 16 hex: names the key in lists and logs
	tenant TEXT NOT NULL,		-- its owner; rotation keeps the tenant
	name TEXT NOT NULL,
	tier TEXT NOT NULL,
	hash BLOB NOT NULL UNIQUE,	-- SHA-256 of the key; the key itself is not stored
	created_at_ms INTEGER NOT NULL,
	revoked_at_ms INTEGER NOT NULL,	-- invalid from then on, may be in the future; 0: not revoked
	revoked INTEGER NOT NULL	-- 1: permanently, whatever the clock says
) STRICT, WITHOUT ROWID;

CREATE TABLE spaces (
	id TEXT PRIMARY KEY,
	tenant TEXT NOT NULL,
	sandbox TEXT NOT NULL,		-- id of the sandbox that was frozen
	template TEXT NOT NULL,
	vcpus INTEGER NOT NULL,
	ram_mib INTEGER NOT NULL,
	rootfs_gb INTEGER NOT NULL,
	timeout_s INTEGER NOT NULL,
	idle_timeout_s INTEGER NOT NULL,
	egress INTEGER NOT NULL,
	created_at_ms INTEGER NOT NULL,
	size_bytes INTEGER NOT NULL,	-- disk usage of its files
	seq_reserved INTEGER NOT NULL,
	metadata TEXT NOT NULL,
	env BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX spaces_tenant ON spaces (tenant, created_at_ms);

CREATE TABLE spaces_gone (		-- resumed or deleted Spaces whose files may still exist
	id TEXT PRIMARY KEY
) STRICT, WITHOUT ROWID;

CREATE TABLE live_copy (		-- the live copy in memory that updates this file (store-mirror.c)
	only INTEGER PRIMARY KEY CHECK (only = 1),
	id TEXT NOT NULL
) STRICT;

CREATE TABLE answers (			-- to requests with an Idempotency-Key that had an effect
	key BLOB PRIMARY KEY,		-- hash of the tenant and the client's key
	asks BLOB NOT NULL,		-- hash of the request
	tenant TEXT NOT NULL,
	answered_at_ms INTEGER NOT NULL,
	kind INTEGER NOT NULL,		-- enum made_kind
	ids TEXT NOT NULL,		-- of what the request made, space-separated
	pause_us INTEGER NOT NULL,	-- of a fork, like the next two; else 0
	ready_us INTEGER NOT NULL,
	copied_bytes INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- step 11
CREATE TABLE events (			-- the audit log, and the queue of the webhooks
	n INTEGER PRIMARY KEY,		-- each event's is one more than that of the event before it
	at_ms INTEGER NOT NULL,		-- never before that of the event before it
	tenant TEXT NOT NULL,
	line TEXT NOT NULL		-- the event as one JSON object
) STRICT;

CREATE TABLE webhooks (
	only INTEGER PRIMARY KEY CHECK (only = 1),
	done INTEGER NOT NULL		-- number of the last event that was sent or is not wanted
) STRICT;

-- step 12
CREATE INDEX events_tenant ON events (tenant);	-- its entries are in the order of n

CREATE TABLE event_counts (		-- events of each tenant that has any
	tenant TEXT PRIMARY KEY,
	events INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX event_counts_events ON event_counts (events);

CREATE TABLE event_total (
	only INTEGER PRIMARY KEY CHECK (only = 1),
	events INTEGER NOT NULL
) STRICT;

INSERT INTO event_counts SELECT tenant, count(*) FROM events GROUP BY tenant;
INSERT INTO event_total SELECT 1, count(*) FROM events;

CREATE TRIGGER event_added AFTER INSERT ON events BEGIN
	UPDATE event_total SET events = events + 1;
	INSERT INTO event_counts VALUES (new.tenant, 1)
		ON CONFLICT (tenant) DO UPDATE SET events = events + 1;
END;
CREATE TRIGGER event_removed AFTER DELETE ON events BEGIN
	UPDATE event_total SET events = events - 1;
	UPDATE event_counts SET events = events - 1 WHERE tenant = old.tenant;
	DELETE FROM event_counts WHERE tenant = old.tenant AND events = 0;
END;

-- step 13
ALTER TABLE sandboxes ADD COLUMN root TEXT NOT NULL DEFAULT '';		-- of its tree
ALTER TABLE sandboxes ADD COLUMN depth INTEGER NOT NULL DEFAULT 0;	-- forks from the root
ALTER TABLE sandboxes ADD COLUMN score REAL;				-- NULL: none
ALTER TABLE sandboxes ADD COLUMN labels TEXT NOT NULL DEFAULT '{}';
UPDATE sandboxes SET root = CASE ancestors WHEN '' THEN id ELSE substr(ancestors, 1, 36) END,
	depth = (length(ancestors) + 1) / 37;
ALTER TABLE spaces ADD COLUMN root TEXT NOT NULL DEFAULT '';
ALTER TABLE spaces ADD COLUMN depth INTEGER NOT NULL DEFAULT 0;
ALTER TABLE spaces ADD COLUMN score REAL;
ALTER TABLE spaces ADD COLUMN labels TEXT NOT NULL DEFAULT '{}';
UPDATE spaces SET root = sandbox;

CREATE TABLE trees (			-- those that have a budget
	root TEXT PRIMARY KEY,		-- id of the first sandbox, also after its end
	tenant TEXT NOT NULL,
	live INTEGER NOT NULL,		-- limits; 0: none
	ram_mib INTEGER NOT NULL,
	cpu_s INTEGER NOT NULL,
	wall_s INTEGER NOT NULL,
	depth INTEGER NOT NULL,
	at_limit INTEGER NOT NULL,	-- enum tree_at_limit
	created_at_ms INTEGER NOT NULL,
	spent_ms INTEGER NOT NULL	-- CPU time of VMs that have ended
) STRICT, WITHOUT ROWID;

-- step 14
CREATE TABLE checkpoints (		-- one that is on disk is a Space too: its row there has the rest
	id TEXT PRIMARY KEY,
	tenant TEXT NOT NULL,
	name TEXT NOT NULL,		-- empty: none
	pin INTEGER NOT NULL,
	expires_at_ms INTEGER NOT NULL,	-- 0: never
	parent TEXT NOT NULL,		-- the one before it of those that exist; empty: none
	ancestors TEXT NOT NULL,	-- of its sandbox, oldest first, then the sandbox; space-separated
	shared_bytes INTEGER NOT NULL,	-- of its files: disk usage of those that others had already
	kind INTEGER NOT NULL,		-- enum checkpoint_kind
	call_seq INTEGER NOT NULL	-- number of the state: of the last event that led to it
) STRICT, WITHOUT ROWID;
ALTER TABLE sandboxes ADD COLUMN checkpoint_calls INTEGER NOT NULL DEFAULT 0;	-- how many are kept; 0: none is taken

-- step 15
CREATE INDEX checkpoints_parent ON checkpoints (parent);
ALTER TABLE sandboxes ADD COLUMN checkpoint TEXT NOT NULL DEFAULT '';	-- last one that its state comes from; empty: none
UPDATE sandboxes SET checkpoint = coalesce((SELECT id FROM spaces WHERE sandbox = sandboxes.id
	AND id IN (SELECT id FROM checkpoints) ORDER BY created_at_ms DESC, id DESC LIMIT 1), '');
CREATE INDEX sandboxes_checkpoint ON sandboxes (checkpoint);
ALTER TABLE sandboxes ADD COLUMN given_seq INTEGER NOT NULL DEFAULT 0;		-- last event when it got its state from
ALTER TABLE sandboxes ADD COLUMN given_state INTEGER NOT NULL DEFAULT 0;	-- elsewhere, and the number of that state
