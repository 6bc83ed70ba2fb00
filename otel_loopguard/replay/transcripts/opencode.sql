-- What is asked of a database of opencode. `longest` is what is read of a row, in characters.

-- How many of the three are tables of stored values: a view, or a column that is worked out, may be
-- a program that never ends.
--- stored
SELECT count(*) FROM sqlite_master AS s WHERE name IN ('session', 'message', 'part')
AND rootpage > 0 AND NOT EXISTS (SELECT 1 FROM pragma_table_xinfo(s.name) WHERE hidden > 0)

--- sessions
SELECT s.id, count(*), s.time_updated FROM session s JOIN message m ON m.session_id = s.id
GROUP BY s.id ORDER BY s.id

--- session
SELECT parent_id, directory, version, time_updated FROM session WHERE id = ?

--- messages
SELECT id, time_created, CASE WHEN length(data) <= :longest THEN data END,
CASE WHEN typeof(data) = 'text' AND json_valid(data) THEN json_extract(data, '$.role') END,
CASE WHEN typeof(data) = 'text' AND json_valid(data)
THEN json_extract(data, '$.time.completed') END
FROM message WHERE session_id = :session AND (time_created, id) > (:time, :message)
AND typeof(time_created) = 'integer' ORDER BY time_created, id LIMIT :count

--- parts
SELECT id, CASE WHEN length(data) <= :longest THEN data END
FROM part WHERE message_id = :message ORDER BY id
