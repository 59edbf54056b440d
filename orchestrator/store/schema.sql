-- The catalogue's tables, as steps: step N brings a catalogue of version N-1 to version N. A step
-- that was released is never changed; a change is a new step.

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
	seq_reserved INTEGER NOT NULL,	-- no event has had this number or a later one
	metadata TEXT NOT NULL,
	env BLOB NOT NULL,		-- NAME=VALUE, each with a NUL
	ended_at_ms INTEGER NOT NULL,	-- 0: it lives
	ended_code TEXT NOT NULL,
	ended_text TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX sandboxes_ended ON sandboxes (ended_at_ms);

-- step 2
ALTER TABLE sandboxes ADD COLUMN ancestors TEXT NOT NULL DEFAULT ''; -- ids, oldest first, by spaces

-- step 3
CREATE TABLE keys (
	id TEXT PRIMARY KEY,		-- "key_" + 16 hex: what lists and logs call it
	tenant TEXT NOT NULL,		-- whose it is; a rotated key has that of the one before it
	name TEXT NOT NULL,
	tier TEXT NOT NULL,
	hash BLOB NOT NULL UNIQUE,	-- SHA-256 of the key; the key itself is nowhere
	created_at_ms INTEGER NOT NULL,
	revoked_at_ms INTEGER NOT NULL	-- no good from then on, which may be to come; 0: it is good
) STRICT, WITHOUT ROWID;

-- step 4
CREATE TABLE spaces (
	id TEXT PRIMARY KEY,
	tenant TEXT NOT NULL,
	sandbox TEXT NOT NULL,		-- the id it had when it was frozen
	template TEXT NOT NULL,
	vcpus INTEGER NOT NULL,
	ram_mib INTEGER NOT NULL,
	rootfs_gb INTEGER NOT NULL,
	timeout_s INTEGER NOT NULL,
	idle_timeout_s INTEGER NOT NULL,
	egress INTEGER NOT NULL,
	created_at_ms INTEGER NOT NULL,
	size_bytes INTEGER NOT NULL,	-- that its files take on the disk
	seq_reserved INTEGER NOT NULL,
	metadata TEXT NOT NULL,
	env BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX spaces_tenant ON spaces (tenant, created_at_ms);

-- step 5
ALTER TABLE keys ADD COLUMN revoked INTEGER NOT NULL DEFAULT 0; -- 1: for good, whatever the clock says
UPDATE keys SET revoked = 1
	WHERE revoked_at_ms > 0 AND revoked_at_ms <= CAST(strftime('%s', 'now') AS INTEGER) * 1000;

-- step 6
CREATE TABLE spaces_gone (		-- were resumed or deleted; their files may still be there
	id TEXT PRIMARY KEY
) STRICT, WITHOUT ROWID;

-- step 7
ALTER TABLE sandboxes ADD COLUMN instance BLOB NOT NULL DEFAULT x''; -- of its VM; empty: it has none
-- Of two that claim one slot nobody can say whose VM is in it.
UPDATE sandboxes SET ended_at_ms = unixepoch() * 1000, ended_code = 'vm_died',
	ended_text = 'the catalogue named its VM slot for another sandbox, too'
	WHERE ended_at_ms = 0 AND slot IN (
		SELECT slot FROM sandboxes WHERE ended_at_ms = 0 GROUP BY slot HAVING count(*) > 1);
CREATE UNIQUE INDEX sandboxes_slot ON sandboxes (slot) WHERE ended_at_ms = 0;

-- step 8
CREATE TABLE live_copy (		-- which copy in memory this file follows (store-mirror.c)
	only INTEGER PRIMARY KEY CHECK (only = 1),
	id TEXT NOT NULL
) STRICT;
