-- The catalogue's tables, as steps: step N upgrades a catalogue of version N-1 to version N. A
-- released step must never change; add a new step instead.

-- step 1
CREATE TABLE sandboxes (
	id TEXT PRIMARY KEY,
	tenant TEXT NOT NULL,
	template TEXT NOT NULL,
	slot INTEGER NOT NULL,
	pid INTEGER NOT NULL,
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
	ended_text TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX sandboxes_ended ON sandboxes (ended_at_ms);

-- step 2
ALTER TABLE sandboxes ADD COLUMN ancestors TEXT NOT NULL DEFAULT ''; -- ids, oldest first, space-separated

-- step 3
CREATE TABLE keys (
	id TEXT PRIMARY KEY,		-- "key_" + 16 hex: names the key in lists and logs
	tenant TEXT NOT NULL,		-- its owner; rotation keeps the tenant
	name TEXT NOT NULL,
	tier TEXT NOT NULL,
	hash BLOB NOT NULL UNIQUE,	-- SHA-256 of the key; the key itself is not stored
	created_at_ms INTEGER NOT NULL,
	revoked_at_ms INTEGER NOT NULL	-- invalid from then on, may be in the future; 0: not revoked
) STRICT, WITHOUT ROWID;

-- step 4
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

-- step 5
ALTER TABLE keys ADD COLUMN revoked INTEGER NOT NULL DEFAULT 0; -- 1: permanently, whatever the clock says
UPDATE keys SET revoked = 1
	WHERE revoked_at_ms > 0 AND revoked_at_ms <= CAST(strftime('%s', 'now') AS INTEGER) * 1000;

-- step 6
CREATE TABLE spaces_gone (		-- resumed or deleted Spaces whose files may still exist
	id TEXT PRIMARY KEY
) STRICT, WITHOUT ROWID;

-- step 7
ALTER TABLE sandboxes ADD COLUMN instance BLOB NOT NULL DEFAULT x''; -- id of its VM process; empty: none
-- If two sandboxes claim one slot, it is unknown whose VM is in it: end both.
UPDATE sandboxes SET ended_at_ms = unixepoch() * 1000, ended_code = 'vm_died',
	ended_text = 'the catalogue named its VM slot for another sandbox, too'
	WHERE ended_at_ms = 0 AND slot IN (
		SELECT slot FROM sandboxes WHERE ended_at_ms = 0 GROUP BY slot HAVING count(*) > 1);
CREATE UNIQUE INDEX sandboxes_slot ON sandboxes (slot) WHERE ended_at_ms = 0;

-- step 8
CREATE TABLE live_copy (		-- the live copy in memory that updates this file (store-mirror.c)
	only INTEGER PRIMARY KEY CHECK (only = 1),
	id TEXT NOT NULL
) STRICT;

-- step 9
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

-- step 10
ALTER TABLE sandboxes ADD COLUMN ports TEXT NOT NULL DEFAULT ''; -- shared ports: "PORT:PUBLIC:TOKEN ..."
