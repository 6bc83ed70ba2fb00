"""Whether an answer says that what was asked for is not there yet."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from otel_loopguard.identity.outcomes import Outcome

_LOOK: Final = 2_000
_SENTENCE: Final = 400
_WORD: Final = 120
_WORDS: Final = (
    rb"pending|in[ _-]?progress|(?:en)?queued?|running|waiting|processing|working|starting|"
    rb"scheduled|provisioning|initiali[sz]ing|creating|submitted|accepted|"
    rb"preparing|building|deploying|rolling|uploading|downloading|compiling|indexing|rendering|"
    rb"training|syncing|updating|installing|loading|pulling|transcoding|converting|exporting|"
    rb"importing|generating|validating|verifying|awaiting\w*|ongoing|incomplete|"
    rb"unfinished|delayed|deferred|retrying|warming|booting|executing|in[ _-]?review|"
    rb"under[ _-]review|not[ _-](?:yet[ _-]|ready|started|finished|done|complete)\w*|dispatched|"
    rb"on[ _-]hold"
)
_FIELD: Final = re.compile(
    rb"\b(?:\w{1,20}[_ .-]?)?(?:status|state|phase|stage|progress|lifecycle)\b[\"']?"
    rb"(?: is)?(?:\s{0,3}[:=>]|[^<>\n]{0,40}>| )\s{0,3}[\"']?(?:" + _WORDS + rb")\b"
    rb"|\b(?:is_?)?(?:done|ready|finished|completed?|available|approved|terminal|resolved)[\"']?"
    rb"\s{0,3}[:=>]\s{0,3}[\"']?(?:false|no|0|null|none)\b"
    rb"|(?:status|code|http)[\w/. \"']{0,12}[:=>\s]\s{0,3}[\"']?202\b|\b202 accepted|"
    rb"^\W{0,3}202\W{0,3}$"
)
"""A field that says so, whatever stands around it."""
_SAYS: Final = re.compile(
    rb"\b(?:pending|in[ _-]progress|(?:en)?queued|not (?:yet )?(?:ready|available|finished|done|"
    rb"complete|completed|started|processed|approved|answered|arrived|there)|"
    rb"(?:isn|hasn|aren|haven)'t (?:\w{1,20} ){0,3}yet|(?:no|not|nothing)\b.{0,60}\byet|"
    rb"still \w+|awaiting|waiting (?:for|on|to)|please wait|check (?:back|again)|"
    rb"(?:try|ask|come|look) (?:again|back) (?:later|in|soon|shortly)|retry[- _]?after|"
    rb"under review|in (?:the )?queue|being \w+ed|no new output|eta\b ?[:=~]? ?\d|"
    rb"(?:container|pod)(?:creat|initializ)ing|"
    rb"\d+(?:\.\d+)? ?(?:s|secs?|seconds?|m|mins?|minutes?|h|hours?|%) (?:remaining|left|to go))"
)
_SHORT: Final = re.compile(
    rb"\b(?:running|processing|waiting|working|starting|scheduled|provisioning|initiali[sz]ing|"
    rb"loading|active|ongoing|unfinished|incomplete|"
    rb"(?<![\d.])\d{1,2}(?:\.\d{1,3})? ?%|"
    rb"\d+ ?(?:/|of) ?\d+ (?:done|completed?|processed|ready|finished|jobs|steps|tasks))"
    rb"|^\W{0,4}(?!nothing|missing|warning|string|something|anything|everything|king|thing|"
    rb"meeting|listing|setting|morning|evening|spring)[a-z]{3,20}ing"
    rb"(?:\W{0,4}$|[^\n]{0,80}(?:\.\.\.|\xe2\x80\xa6)\W{0,4}$)"
)
_NOT_OVER: Final = re.compile(
    rb"\b(?:not|no|n't|0|until|when|once|if|after|before|for) (?:\w{1,20} ){0,3}?"
    rb"(?:done|finished|completed?|success\w{0,5}|failed|failures?|errors?|stopped|exited)"
)
_OVER: Final = re.compile(
    rb"\b(?:fail(?:s|ed|ure|ures)?|errors?|exception|traceback|denied|crash\w{0,12}|abort(?:ed)?|"
    rb"cancell?ed|completed?|finished|done|success\w{0,5}|succeeded|exited|killed|timed out|"
    rb"not found|no such|stopped|rejected|invalid|refused|fatal|unavailable|expired|closed|"
    rb"not running)\b"
)
_ASKS: Final = re.compile(
    r"(?i)(?:^|_|\b)(?:is|has|are|await|poll|wait)(?:_?for)?_?(?:\w*_)?(?:ready|done|finished|"
    r"completed?|available|approved|arrived|started|running|over)|poll|await"
)
_NO: Final = frozenset((b"false", b"no", b"0", b"null", b"none", b"no.", b"not yet", b"{}", b"[]"))


def is_pending(outcome: Outcome, tool: str) -> bool:
    """Whether an outcome says by itself that it is not there yet: running, queued, not ready, 202.

    A field that says so counts wherever it stands in the first 2,000 bytes; words do in an answer
    of at most 400 characters, and words that mean other things too in one of at most 120. What
    speaks of an end, good or bad, is not pending.

    Args:
        outcome: The outcome.
        tool: Name of the tool; of one that asks whether something is there "no" is pending.
    """
    if outcome.key is None:
        return False
    low = outcome.raw[:_LOOK].lower()
    said = outcome.said
    if outcome.size <= _WORD and said.strip(b" \"'\n") in _NO:
        return _ASKS.search(tool) is not None
    if _FIELD.search(low) is not None or _FIELD.search(said) is not None:
        return True
    if outcome.size > _SENTENCE:
        return False
    if _SAYS.search(low) is None and (outcome.size > _WORD or _SHORT.search(said) is None):
        return False
    return _OVER.search(_NOT_OVER.sub(b"", low)) is None
