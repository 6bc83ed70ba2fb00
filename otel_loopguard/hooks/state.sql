-- The state of the hooks: what its file is made of, and what is asked of it.

--- tables
CREATE TABLE session (
  key TEXT PRIMARY KEY, mode TEXT NOT NULL, used INTEGER NOT NULL, allowed TEXT
);
CREATE TABLE item (
  place INTEGER PRIMARY KEY, session TEXT NOT NULL, kind TEXT NOT NULL, id TEXT NOT NULL,
  value BLOB NOT NULL, UNIQUE (session, kind, id)
);

--- begin
BEGIN IMMEDIATE

--- commit
COMMIT

--- rollback
ROLLBACK

--- use
INSERT INTO session (key, mode, used) VALUES (:session, :mode, :now)
ON CONFLICT (key) DO UPDATE SET mode = excluded.mode, used = excluded.used

--- mode
SELECT mode, used FROM session WHERE key = :session

--- allow
UPDATE session SET allowed = :calls WHERE key = :session

--- allowed
SELECT allowed FROM session WHERE key = :session

--- add
INSERT OR IGNORE INTO item (session, kind, id, value) VALUES (:session, 'entry', :id, :value)

--- put
INSERT INTO item (session, kind, id, value) VALUES (:session, :kind, :id, :value)
ON CONFLICT (session, kind, id) DO UPDATE SET value = excluded.value

--- item
SELECT value FROM item WHERE session = :session AND kind = :kind AND id = :id

--- items
SELECT id, value FROM item WHERE session = :session AND kind = :kind AND place > coalesce(
  (SELECT place FROM item WHERE session = :session AND kind = :kind AND id = :after), 0
) ORDER BY place

--- trim
DELETE FROM item WHERE session = :session AND kind = :kind AND place <= (
  SELECT place FROM item WHERE session = :session AND kind = :kind
  ORDER BY place DESC LIMIT 1 OFFSET :most
)

--- forget_sessions
DELETE FROM session WHERE used < :until

--- forget_items
DELETE FROM item WHERE session NOT IN (SELECT key FROM session)
