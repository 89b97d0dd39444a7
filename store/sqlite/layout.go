package sqlite

// migrations are the steps from each version of the stored layout to the next;
// the first makes version 1 of nothing. A file with an older version is migrated,
// one with a newer one refused. A step that was released is never changed.
var migrations = [][]string{layout1}

// eventFields are the columns that an event and a job have in common. The
// payload stands last: what is after a large value costs pages to read.
const (
	eventFields = `
	aggregate TEXT NOT NULL DEFAULT '',
	aggregate_id TEXT NOT NULL DEFAULT '',
	event_type TEXT NOT NULL,
	content_type TEXT NOT NULL DEFAULT '',
	version INTEGER NOT NULL DEFAULT 0,
	aggregate_version INTEGER NOT NULL DEFAULT 0,
	headers TEXT NOT NULL DEFAULT '{}',
	tenant TEXT NOT NULL DEFAULT '',
	occurred_at INTEGER NOT NULL DEFAULT (` + sqlNow + `),
	correlation_id TEXT NOT NULL DEFAULT '',
	codec TEXT NOT NULL DEFAULT '',
	key_id TEXT NOT NULL DEFAULT '',`
	randomID = `DEFAULT (lower(hex(randomblob(16))))`
	// valid is what the database itself asks of events and jobs that programs
	// in other languages write.
	valid = `event_type <> '' AND length(CAST(event_type AS BLOB)) <= 255 AND length(CAST(aggregate_id AS BLOB)) <= 1024 AND
		length(CAST(tenant AS BLOB)) <= 255 AND version >= 0 AND aggregate_version >= 0 AND
		CASE WHEN json_valid(headers) THEN json_type(headers) = 'object' ELSE 0 END`
)

// ring is what a trigger does that wakes the workers of a sink.
func ring(sink string) string {
	return `INSERT INTO outbox_bells (sink, rung) VALUES (` + sink + `, 1 + (SELECT coalesce(max(rung), 0) FROM outbox_bells))
		ON CONFLICT (sink) DO UPDATE SET rung = excluded.rung;`
}

var layout1 = []string{
	`CREATE TABLE outbox_meta (
		one INTEGER PRIMARY KEY CHECK (one = 1),
		layout INTEGER NOT NULL,
		id TEXT NOT NULL,
		fence INTEGER NOT NULL
	) STRICT`,
	`INSERT INTO outbox_meta (one, layout, id, fence) VALUES (1, 0, lower(hex(randomblob(16))), 0)`,
	`CREATE TABLE outbox (
		id INTEGER PRIMARY KEY AUTOINCREMENT,
		event_id TEXT NOT NULL UNIQUE ` + randomID + `,` + eventFields + `
		written_at INTEGER NOT NULL DEFAULT (` + sqlNow + `),
		published_at INTEGER,
		payload ANY NOT NULL,
		CHECK (event_id <> '' AND length(CAST(event_id AS BLOB)) <= 255 AND aggregate_id <> '' AND ` + valid + `)
	) STRICT`,
	`CREATE TABLE outbox_cursors (
		name TEXT PRIMARY KEY,
		owner TEXT NOT NULL,
		sink TEXT NOT NULL,
		fence INTEGER NOT NULL,
		lease_until INTEGER NOT NULL,
		revision INTEGER NOT NULL,
		marking INTEGER NOT NULL,
		created_at INTEGER NOT NULL,
		begin_after INTEGER NOT NULL,
		written_from INTEGER,
		include_published INTEGER NOT NULL,
		position INTEGER NOT NULL DEFAULT 0,
		settled INTEGER NOT NULL DEFAULT 0,
		moved INTEGER NOT NULL DEFAULT 0,
		fruitless INTEGER NOT NULL DEFAULT 0,
		suspect TEXT NOT NULL DEFAULT '',
		suspect_count INTEGER NOT NULL DEFAULT 0,
		suspect_fence INTEGER NOT NULL DEFAULT 0
	) STRICT`,
	`CREATE TABLE outbox_jobs (
		seq INTEGER PRIMARY KEY AUTOINCREMENT,
		id TEXT NOT NULL UNIQUE ` + randomID + `,
		event_id TEXT NOT NULL DEFAULT '',` + eventFields + `
		sink TEXT NOT NULL,
		rank INTEGER DEFAULT 1 CHECK (rank BETWEEN 0 AND 2),
		dedup_key TEXT NOT NULL DEFAULT '',
		hash BLOB,
		hash_key TEXT NOT NULL DEFAULT '',
		state TEXT NOT NULL DEFAULT 'ready' CHECK (state IN ('ready', 'active', 'completed', 'failed', 'unknown')),
		attempts INTEGER NOT NULL DEFAULT 0,
		max_attempts INTEGER NOT NULL DEFAULT 10,
		redeliveries INTEGER NOT NULL DEFAULT 0,
		redelivered INTEGER NOT NULL DEFAULT 0,
		redriven INTEGER NOT NULL DEFAULT 0,
		discarded INTEGER NOT NULL DEFAULT 0,
		enqueued_at INTEGER NOT NULL DEFAULT (` + sqlNow + `),
		available_at INTEGER NOT NULL DEFAULT 0,
		token INTEGER,
		owner TEXT NOT NULL DEFAULT '',
		claimed_at INTEGER,
		lease_until INTEGER,
		failure_code TEXT NOT NULL DEFAULT '',
		failure_reason TEXT NOT NULL DEFAULT '',
		failed_at INTEGER,
		result TEXT NOT NULL DEFAULT '',
		finished_at INTEGER,
		expire_at INTEGER,
		cursor TEXT,
		position INTEGER,
		holds INTEGER NOT NULL DEFAULT 0,
		payload ANY,
		CHECK (sink <> '' AND (rank IS NULL) = (cursor IS NOT NULL) AND (cursor IS NOT NULL OR ` + valid + `))
	) STRICT`,
	// The row's own id, seq, ends each index: that is the order of commits.
	`CREATE INDEX outbox_jobs_due ON outbox_jobs (sink, rank, available_at) WHERE state = 'ready' AND rank IS NOT NULL`,
	`CREATE INDEX outbox_jobs_tenants ON outbox_jobs (sink, tenant, rank, available_at) WHERE state = 'ready' AND rank IS NOT NULL`,
	`CREATE INDEX outbox_jobs_leases ON outbox_jobs (lease_until) WHERE state = 'active'`,
	`CREATE INDEX outbox_jobs_ended ON outbox_jobs (state) WHERE state IN ('failed', 'unknown')`,
	`CREATE INDEX outbox_jobs_parked ON outbox_jobs (cursor, position) WHERE cursor IS NOT NULL`,
	`CREATE INDEX outbox_jobs_expiring ON outbox_jobs (expire_at) WHERE expire_at IS NOT NULL`,
	`CREATE TABLE outbox_pauses (
		scope TEXT NOT NULL,
		name TEXT NOT NULL,
		paused_until INTEGER,
		reason TEXT NOT NULL,
		operator TEXT NOT NULL,
		PRIMARY KEY (scope, name)
	) STRICT`,
	`CREATE TABLE outbox_acts (
		id INTEGER PRIMARY KEY AUTOINCREMENT,
		done_at INTEGER NOT NULL,
		operator TEXT NOT NULL,
		reason TEXT NOT NULL,
		what TEXT NOT NULL,
		target TEXT NOT NULL,
		jobs INTEGER NOT NULL
	) STRICT`,
	`CREATE TABLE outbox_bells (
		sink TEXT PRIMARY KEY,
		rung INTEGER NOT NULL
	) STRICT, WITHOUT ROWID`,
	`CREATE INDEX outbox_bells_rung ON outbox_bells (rung)`,
	`CREATE TRIGGER outbox_jobs_enqueued AFTER INSERT ON outbox_jobs WHEN new.rank IS NOT NULL
		BEGIN ` + ring("new.sink") + ` END`,
	`CREATE TRIGGER outbox_jobs_released AFTER UPDATE OF state ON outbox_jobs WHEN new.state = 'ready'
		BEGIN ` + ring("new.sink") + ` END`,
	`CREATE TRIGGER outbox_jobs_discarded AFTER UPDATE OF discarded ON outbox_jobs WHEN new.discarded
		BEGIN ` + ring("new.sink") + ` END`,
	`CREATE TRIGGER outbox_pauses_set AFTER INSERT ON outbox_pauses BEGIN ` + ring("''") + ` END`,
	`CREATE TRIGGER outbox_pauses_changed AFTER UPDATE ON outbox_pauses BEGIN ` + ring("''") + ` END`,
	`CREATE TRIGGER outbox_pauses_ended AFTER DELETE ON outbox_pauses BEGIN ` + ring("''") + ` END`,
}
