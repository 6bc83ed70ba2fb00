-- The tables of the summary page: a title behind `-- #`, a note behind `--`, and a query.
-- A column whose name ends in `#` holds numbers, in `|` bars of them. Views: `results`, a row per
-- session; `decisions`, a row for each of theirs; `differing`, sessions that another settings file
-- decides differently. What fits on a screen is shown (15 rows), and of sessions what a browser
-- opens at once (200); the Parquet files have all.

CREATE VIEW results AS SELECT * FROM read_parquet({parts});
CREATE VIEW decisions AS
  SELECT session, source, unnest(decisions, recursive := true) FROM results;
CREATE VIEW differing AS
  WITH a AS (
    SELECT *, len(decisions) AS made FROM results
    QUALIFY row_number() OVER (PARTITION BY session, source ORDER BY made) = 1
  ), b AS (
    SELECT *, len(decisions) AS made FROM read_parquet({others})
    QUALIFY row_number() OVER (PARTITION BY session, source ORDER BY made) = 1
  )
  SELECT session, source, a.strongest AS one, b.strongest AS other,
    a.stop_step + 1 AS one_stop, b.stop_step + 1 AS other_stop
  FROM a FULL JOIN b USING (session, source)
  WHERE a.strongest IS DISTINCT FROM b.strongest OR a.stop_step IS DISTINCT FROM b.stop_step
    OR a.made IS DISTINCT FROM b.made;

-- # Sessions by their strongest decision
SELECT CASE strongest WHEN 'allow' THEN 'nothing, or a note' ELSE strongest END AS strongest,
  count(*) AS "sessions|", sum(steps)::BIGINT AS "steps#"
FROM results GROUP BY ALL ORDER BY 2 DESC, 1;

-- # Which loops
SELECT detector, rule, count(DISTINCT (session, source)) AS "sessions|",
  count(*) AS "decisions#", count(*) FILTER (action IN ('deny', 'pause', 'abort')) AS "of them stops#",
  median(step) + 1 AS "median step#"
FROM decisions GROUP BY ALL ORDER BY 3 DESC, rule LIMIT 15;

-- # Where: by tool, sessions with a decision
SELECT coalesce(tool, '(no tool)') AS tool, count(DISTINCT (session, source)) AS "sessions|"
FROM decisions GROUP BY ALL ORDER BY 2 DESC, 1 LIMIT 15;

-- # Where: by source, sessions with a decision
SELECT source, count(DISTINCT (session, source)) AS "sessions|"
FROM decisions GROUP BY ALL ORDER BY 2 DESC, 1 LIMIT 15;

-- # What a stop would have saved
-- Used after the first deny, pause or abort, of all that these sessions used. At most: an agent that
-- is denied a call may go on another way.
WITH used AS (
  SELECT 'tool calls' AS unit, calls::DOUBLE AS spent, calls_after::DOUBLE AS after, stop_step
  FROM results
  UNION ALL SELECT 'tokens', tokens, tokens_after, stop_step FROM results
  UNION ALL SELECT 'seconds', seconds, seconds_after, stop_step FROM results
  UNION ALL SELECT 'USD', cost, cost_after, stop_step FROM results
)
SELECT unit AS "of stopped sessions", sum(spent) AS "used#", sum(after) AS "after the stop#",
  round(100 * sum(after) / nullif(sum(spent), 0)) AS "share, %|",
  count(spent) AS "sessions that say it#"
FROM used WHERE stop_step IS NOT NULL GROUP BY unit ORDER BY 5 DESC, 1;

-- # At which false-stop rate
-- A column `loop` (true or false) labels sessions: healthy ones should not be stopped.
SELECT CASE loop WHEN true THEN 'stuck' WHEN false THEN 'healthy' ELSE 'not labelled' END AS label,
  count(*) AS "sessions#", count(*) FILTER (strongest <> 'allow') AS "noticed#",
  count(stop_step) AS "stopped#", 100 * count(stop_step) / count(*) AS "stopped, %|"
FROM results GROUP BY ALL ORDER BY label;

-- # Sessions that would have been stopped
-- Those that went on for longest first.
SELECT left(session, 400) AS session, source, stop_action AS stop, stop_step + 1 AS "at step#",
  steps AS "of#", made.tool AS tool, left(made.message, 400) AS why
FROM (
  SELECT *, [d FOR d IN decisions IF d.step = stop_step AND d.action = stop_action][1] AS made
  FROM results WHERE stop_step IS NOT NULL
) ORDER BY steps_after DESC, session, source LIMIT 200;

-- # Two settings compared
SELECT one AS strongest, other AS "strongest by the others", count(*) AS "sessions|"
FROM differing GROUP BY ALL ORDER BY 3 DESC, 1, 2;

-- # Sessions that they decide differently
SELECT left(session, 400) AS session, source, one AS strongest, one_stop AS "stop at step#",
  other AS "strongest by the others", other_stop AS "their stop at step#"
FROM differing ORDER BY ALL LIMIT 200;
