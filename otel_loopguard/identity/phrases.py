"""Phrases in what a model writes: doubt, apologies, announcements.

All of them stand on word boundaries (F12: "in**stalled**" is no stall), and none means anything
when it is seen once.
"""

from __future__ import annotations

import re
from typing import Final

from otel_loopguard.core import Promise
from otel_loopguard.identity.canonical import key_of

_HEDGES: Final = re.compile(
    r"\b(?:i(?:'m| am) not (?:entirely |completely |quite |really )?(?:sure|certain)"
    r"|i (?:might|may|could) be (?:wrong|mistaken)|not (?:entirely |completely )?(?:sure|certain)"
    r"|i (?:guess|suppose|suspect|assume)|(?:it|that|this) (?:seems|appears|might be|may be"
    r"|could be)|it(?:'s| is) (?:unclear|possible that|hard to (?:say|tell))|unclear"
    r"|perhaps|maybe|possibly|presumably)\b"
)
_APOLOGIES: Final = re.compile(
    r"\b(?:i(?:'m| am)? (?:(?:truly|sincerely|deeply|very|so|really) )?(?:apologi[sz]e|sorry)"
    r"|(?:my|sincere) apolog(?:y|ies)|apologies (?:for|again)|sorry (?:for|about|again)"
    r"|my (?:mistake|bad))\b"
)
# Looking for a plain word costs a tenth of trying a pattern at every word.
_HEDGING: Final = (
    "sure", "certain", "wrong", "mistaken", "guess", "suppose", "suspect", "assume", "seems",
    "appears", "might be", "may be", "could be", "clear", "possibl", "hard to", "perhaps", "maybe",
    "presumably",
)  # fmt: skip
_APOLOGISING: Final = ("apolog", "sorry", "my mistake", "my bad")
_PERSONAL: Final = re.compile(r"\b(?:i|i'm|i'll|i've|we|we're|we'll|let's|let me|my|our)\b")
_BEGIN: Final = (
    "begin|start|proceed|continue|resume|kick off|get (?:started|going|to work|to it|on with|right "
    "on)|go ahead|dive|move|jump|work|tackle|handle|take care|address"
)
_SAY: Final = (
    "know|explain|say|tell|think|assume|suggest|recommend|note|mention|see|help|answer|describe|"
    "summari[sz]e|outline|share|ask|point|clarify|elaborate|wait|have|assist|provide|give|show|"
    "now|first|next|then|also|just|again|immediately|quickly|carefully|go|try|be|get"
)
_LEAD: Final = (
    r"(?:now |first |next |then |also |just |again |immediately |quickly |carefully |go ahead and |"
    r"proceed to |try to |get ready to |be )"
)
_PROMISE: Final = re.compile(
    rf"\b(?:(?:i|we)(?:'ll| will| am going to|'m going to| are going to|'re going to| shall|"
    rf" need to| am about to|'m about to| am ready to|'m ready to| have to| should| must| plan to|"
    rf" intend to| want to|'d like to| would like to)|let me|let's|let us|allow me to|time to|"
    rf"(?:about|ready|going) to) {_LEAD}?{_LEAD}?(?:(?P<begin>{_BEGIN})(?:ing)?|"
    rf"(?!(?:{_SAY})\b)[a-z]{{2,20}})\b"
)
_ONGOING: Final = re.compile(
    r"(?:^|\b(?:i am|i'm|we are|we're) )(?:(?:still|now|currently|just) ){0,2}"
    r"(?:(?P<begin>starting|beginning|proceeding|continuing|resuming|working|thinking|planning|"
    r"getting|moving|preparing|processing)|searching|looking|checking|running|opening|reading|"
    r"calling|fetching|querying|executing|browsing|creating|writing|implementing|fixing|"
    r"analy[sz]ing|investigating|loading|gathering)\b"
)
_WORDS: Final = re.compile(r"[^\W\d_]{2,40}")
_AHEAD: Final = 160
_BRIEF: Final = 600
_EMPTY: Final = frozenset(
    "the a an to on in of for with and or by at it its this that these those is are be now next "
    "first then also just again right away out up into as so my our your me us you we will ll am "
    "going let task tasks work job request requested problem assignment step steps plan process "
    "begin beginning start starting started proceed proceeding continue continuing resume working "
    "get getting go ahead move moving do doing immediately soon shortly asked given assigned "
    "required gave "
    "everything thing things what".split()
)  # fmt: skip


def hedges_in(sample: str) -> int:
    """How many phrases of doubt a text in lower case has."""
    return _count(_HEDGES, _HEDGING, sample)


def apologies_in(sample: str) -> int:
    """How many phrases of apology a text in lower case has."""
    return _count(_APOLOGIES, _APOLOGISING, sample)


def _count(phrases: re.Pattern[str], words: tuple[str, ...], sample: str) -> int:
    plain = sample.replace("\u2019", "'")
    return len(phrases.findall(plain)) if any(word in plain for word in words) else 0


def is_personal(sample: str) -> bool:
    """Whether a text in lower case speaks of its author."""
    return _PERSONAL.search(sample) is not None


def promise_in(sample: str) -> Promise | None:
    """The action that a text in lower case announces; None if there is none.

    Only a brief text (up to 600 characters) is an announcement: a long one has done what it speaks
    of, in words. The words after the announcing phrase, up to the end of the sentence, say which
    action. To explain or to ask is no action.
    """
    if len(sample) > _BRIEF:
        return None
    plain = sample.replace("\u2019", "'")
    found = _PROMISE.search(plain) or _ONGOING.search(plain)
    if found is None:
        return None
    ahead = re.split(r"[.!?:;\n]", plain[found.end() : found.end() + _AHEAD], maxsplit=1)[0]
    named = [word for word in _WORDS.findall(ahead) if word not in _EMPTY]
    begins = found.group("begin") is not None
    said = named if begins else [*named, found.group().rsplit(" ", 1)[-1]]
    keys = frozenset(key_of(word.encode("utf-8", "replace")) for word in said)
    return Promise(keys, begins)
